//! Lists the fields of types by deserializing them, and generates values of these types.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde::Serialize;
use serde::de::value::{BorrowedStrDeserializer, Error};
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;

/// Returns the fields of a type and of the types in it.
pub(super) fn fields<T: DeserializeOwned>() -> BTreeSet<String> {
    read::<T>(false).1
}

/// Returns an object with a value in every field, or another value in every field.
pub(super) fn example<T: DeserializeOwned + Serialize>(is_other: bool) -> Value {
    serde_json::to_value(read::<T>(is_other).0).expect("the object is serializable")
}

fn read<T: DeserializeOwned>(is_other: bool) -> (T, BTreeSet<String>) {
    let fields = RefCell::new(BTreeSet::new());
    let read = T::deserialize(Fields {
        path: String::new(),
        read: &fields,
        is_other,
    });
    (
        read.expect("every field is deserializable"),
        fields.into_inner(),
    )
}

/// Deserializer that supplies every requested value and records the fields of structs.
#[derive(Clone)]
struct Fields<'a> {
    path: String,
    read: &'a RefCell<BTreeSet<String>>,
    /// Whether the second set of values is supplied instead of the first.
    is_other: bool,
}

impl Fields<'_> {
    fn below(&self, field: &str) -> Self {
        let path = match self.path.as_str() {
            "" => field.to_owned(),
            path => format!("{path}.{field}"),
        };
        Self {
            path,
            read: self.read,
            is_other: self.is_other,
        }
    }
}

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = Error;

    /// Supplies a text that is also a valid time, for types that parse a time.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(if self.is_other {
            "2001-01-01T00:00:00Z"
        } else {
            "2000-01-01T00:00:00Z"
        })
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(!self.is_other)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i32(1 + i32::from(self.is_other))
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(1 + i64::from(self.is_other))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Once(Some(self)))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Each {
            fields: vec!["key"],
            value: self,
            is_struct: false,
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut recorded = self.read.borrow_mut();
        recorded.extend(fields.iter().map(|field| self.below(field).path));
        drop(recorded);
        // `apiVersion` and `kind` must have the values of the type.
        let is_type = |field: &&str| self.path.is_empty() && ["apiVersion", "kind"].contains(field);
        let mut fields: Vec<&str> = fields
            .iter()
            .copied()
            .filter(|field| !is_type(field))
            .collect();
        fields.reverse();
        visitor.visit_map(Each {
            fields,
            value: self,
            is_struct: true,
        })
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct tuple tuple_struct enum identifier ignored_any
    }
}

struct Once<'a>(Option<Fields<'a>>);

impl<'de> SeqAccess<'de> for Once<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.0
            .take()
            .map(|value| seed.deserialize(value))
            .transpose()
    }
}

/// Map with each of some fields, in reverse order.
struct Each<'a> {
    fields: Vec<&'static str>,
    value: Fields<'a>,
    is_struct: bool,
}

impl<'de> MapAccess<'de> for Each<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let key = self.fields.last();
        key.map(|key| seed.deserialize(BorrowedStrDeserializer::new(key)))
            .transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let field = self.fields.pop().unwrap_or_default();
        let value = if self.is_struct {
            self.value.below(field)
        } else {
            self.value.clone()
        };
        seed.deserialize(value)
    }
}
