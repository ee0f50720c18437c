// A database of cabinet from Go: puts, a copy of a value, an iteration, errors.
//
//	go build . && ./cabinet_example FOLDER
//
// Pointers to Go's memory may be passed to a call, as the library keeps none of them.
package main

/*
#cgo LDFLAGS: -lcabinet
#include <cabinet.h>
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"unsafe"
)

// Error of a call.
type Error struct {
	Code         int
	Text, Advice string
}

func (e *Error) Error() string { return e.Text + "; " + e.Advice }

// Returns the error of a call that has failed, and frees that of C. It gets the place of the error,
// as a variable beside a call may be read before the call has set it.
func failed(status C.cabinet_status, cause **C.cabinet_error) error {
	if status >= 0 {
		return nil
	}
	defer C.cabinet_error_free(*cause)
	text, advice := C.cabinet_error_text(*cause), C.cabinet_error_advice(*cause)
	return &Error{int(status), C.GoString(text), C.GoString(advice)}
}

// Database is an open database. All goroutines may use it.
type Database struct{ handle *C.cabinet_database }

// Open opens the database with a name.
func Open(name string) (*Database, error) {
	var cause *C.cabinet_error
	var handle *C.cabinet_database
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	if err := failed(C.cabinet_open(text, &handle, &cause), &cause); err != nil {
		return nil, err
	}
	return &Database{handle}, nil
}

// Close closes the database and frees its handle.
func (d *Database) Close() { C.cabinet_database_free(d.handle) }

func pointer(bytes []byte) (unsafe.Pointer, C.size_t) {
	return unsafe.Pointer(unsafe.SliceData(bytes)), C.size_t(len(bytes))
}

// Put stores a record.
func (d *Database) Put(key, value []byte) error {
	var cause *C.cabinet_error
	k, keyLength := pointer(key)
	v, valueLength := pointer(value)
	return failed(C.cabinet_put(d.handle, k, keyLength, v, valueLength, &cause), &cause)
}

// Get returns a value; nil if there is none.
func (d *Database) Get(key []byte) ([]byte, error) {
	var cause *C.cabinet_error
	var value *C.char
	var length C.size_t
	k, keyLength := pointer(key)
	status := C.cabinet_get(d.handle, k, keyLength, &value, &length, &cause)
	if err := failed(status, &cause); err != nil || status == C.CABINET_NOT_FOUND {
		return nil, err
	}
	defer C.cabinet_free(unsafe.Pointer(value))
	return C.GoBytes(unsafe.Pointer(value), C.int(length)), nil
}

// ForEach calls a function with each record.
func (d *Database) ForEach(visit func(key, value []byte)) error {
	var cause *C.cabinet_error
	var iterator *C.cabinet_iterator
	if err := failed(C.cabinet_iterate(d.handle, nil, &iterator, &cause), &cause); err != nil {
		return err
	}
	defer C.cabinet_iterator_free(iterator)
	for {
		var record *C.cabinet_record
		status := C.cabinet_iterator_next(iterator, &record, &cause)
		if err := failed(status, &cause); err != nil || status == C.CABINET_NOT_FOUND {
			return err
		}
		visit(C.GoBytes(unsafe.Pointer(record.key), C.int(record.key_length)),
			C.GoBytes(unsafe.Pointer(record.value), C.int(record.value_length)))
	}
}

func main() {
	name := filepath.Join(os.Args[1], "go.tcb")
	database, err := Open(name)
	check(err == nil, err)
	check(database.Put([]byte("apple"), []byte("120")) == nil, "put")
	check(database.Put([]byte("banana"), []byte("95")) == nil, "put")
	value, err := database.Get([]byte("apple"))
	check(err == nil && string(value) == "120", err)
	value, err = database.Get([]byte("cherry"))
	check(err == nil && value == nil, err)
	seen := ""
	err = database.ForEach(func(key, value []byte) { seen += string(key) + "=" + string(value) + " " })
	check(err == nil && seen == "apple=120 banana=95 ", seen)
	_, err = Open(name)
	check(err != nil && err.(*Error).Code == C.CABINET_IN_USE && err.(*Error).Text != "", err)
	database.Close()
	fmt.Println("Go:", seen)
}

func check(holds bool, shown any) {
	if !holds {
		panic(shown)
	}
}
