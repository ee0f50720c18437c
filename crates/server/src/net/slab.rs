//! Slab: values under tokens that are never used twice.

/// Slot and generation of a value. A later value in the same slot has another token. Never 0.
pub(crate) type Token = u64;

/// Values under tokens.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Stores a value and returns its token.
    pub(crate) fn insert(&mut self, value: T) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.value = Some(value);
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    /// Returns the value under `token`.
    #[inline]
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let slot = self.slots.get_mut(index(token))?;
        if slot.generation == generation(token) { slot.value.as_mut() } else { None }
    }

    /// Removes and returns the value under `token`.
    pub(crate) fn remove(&mut self, token: Token) -> Option<T> {
        let slot = self.slots.get_mut(index(token))?;
        if slot.generation != generation(token) {
            return None;
        }
        let value = slot.value.take()?;
        self.free.push(token as u32);
        Some(value)
    }

    /// Returns all tokens in use.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        self.iter().map(|(token, _)| token).collect()
    }

    /// Returns all values with their tokens.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Token, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let token = u64::from(slot.generation) << 32 | index as u64;
            slot.value.as_ref().map(|value| (token, value))
        })
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

fn index(token: Token) -> usize {
    token as u32 as usize
}

fn generation(token: Token) -> u32 {
    (token >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_does_not_reach_the_next_value_in_its_slot() {
        let mut slab = Slab::default();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut "second"));
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.tokens(), [second]);
    }
}
