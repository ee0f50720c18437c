module cabinet_example

go 1.21
