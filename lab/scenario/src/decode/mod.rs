//! Decodes a tree into a type with serde, with the span of each error.
//!
//! There are two modes. The strict mode, for the lab document, refuses unknown fields. The lenient
//! mode, for Kubernetes objects, ignores and records unknown fields, as the API server does. The
//! API types pass their field names to the deserializer, so both modes can suggest a correction.

pub(crate) mod bytes;
pub mod duration;
pub(crate) mod error;
pub(crate) mod spanned_error;
#[cfg(test)]
mod tests;
pub(crate) mod values;

use std::cell::RefCell;
use std::sync::Arc;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::decode::error::{DecodeError, DecodeErrorKind};
use crate::yaml::tree::{Entry, ScalarKind, Tree, Value};
use svclab_diagnostic::Diagnostic;
use svclab_diagnostic::source::Span;
use svclab_diagnostic::suggest::{did_you_mean, format_list};

/// Field of a Kubernetes object that the API does not define.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IgnoredField {
    /// Name of the field.
    pub field: String,
    /// Span of the key.
    pub span: Span,
    /// API type that contains the field.
    pub type_name: &'static str,
    /// Fields that the API type defines.
    pub fields: &'static [&'static str],
}

/// Decodes a tree strictly.
///
/// # Errors
///
/// Returns the first value that does not fit its type, with its span.
pub(crate) fn strict<T: DeserializeOwned>(tree: &Tree) -> Result<T, DecodeError> {
    let node = TreeNode {
        tree,
        key: None,
        ignored: None,
    };
    T::deserialize(node).map_err(|error| error.with_span(node.tree, node.key))
}

/// Decodes a tree as an API server does, and returns the value and the ignored fields.
///
/// # Errors
///
/// Returns the first value that does not fit its type, with its span.
pub(crate) fn lenient<T: DeserializeOwned>(
    tree: &Tree,
) -> Result<(T, Vec<IgnoredField>), DecodeError> {
    let ignored = RefCell::new(Vec::new());
    let node = TreeNode {
        tree,
        key: None,
        ignored: Some(&ignored),
    };
    let value = T::deserialize(node).map_err(|error| error.with_span(node.tree, node.key))?;
    Ok((value, ignored.into_inner()))
}

impl From<IgnoredField> for Diagnostic {
    fn from(ignored: IgnoredField) -> Self {
        Self::warning(format!(
            "Kubernetes has no field `{}` in {}; it is ignored",
            ignored.field, ignored.type_name
        ))
        .with_position(ignored.span, "no such field")
        .with_optional_help(did_you_mean(&ignored.field, ignored.fields.iter().copied()))
    }
}

/// Tree node as a serde deserializer.
#[derive(Clone, Copy)]
struct TreeNode<'t> {
    tree: &'t Tree,
    /// Span of the map key for this node, `None` outside maps.
    key: Option<Span>,
    /// Collected unknown fields; `None` in strict mode.
    ignored: Option<&'t RefCell<Vec<IgnoredField>>>,
}

impl<'t> TreeNode<'t> {
    fn child(self, tree: &'t Tree, key: Option<Span>) -> Self {
        Self { tree, key, ..self }
    }

    /// Records the keys of a map that are not fields of the API type.
    fn record_ignored(self, within: &'static str, fields: &'static [&'static str]) {
        let (Some(ignored), Some(map)) = (self.ignored, self.tree.as_map()) else {
            return;
        };
        let unknown = map
            .iter()
            .filter(|(key, _)| !fields.contains(&key.as_ref()))
            .map(|(key, entry)| IgnoredField {
                field: key.to_string(),
                span: entry.key,
                type_name: within,
                fields,
            });
        ignored.borrow_mut().extend(unknown);
    }

    fn visit<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.tree.value {
            Value::Scalar(scalar) => match scalar.kind {
                ScalarKind::Null => visitor.visit_unit(),
                ScalarKind::Bool(value) => visitor.visit_bool(value),
                ScalarKind::Unsigned(n) => visitor.visit_u64(n),
                ScalarKind::Negative(n) => visitor.visit_i64(n),
                ScalarKind::Float(n) => visitor.visit_f64(n),
                ScalarKind::String => visitor.visit_borrowed_str(&scalar.text),
            },
            Value::Sequence(items) => visitor.visit_seq(Items {
                node: self,
                items: items.iter(),
            }),
            Value::Map(map) => visitor.visit_map(MappingEntries {
                node: self,
                rest: map.iter(),
                value: None,
            }),
        }
    }
}

impl<'t> Deserializer<'t> for TreeNode<'t> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.visit(visitor)
            .map_err(|error| error.with_span(self.tree, self.key))
    }

    fn deserialize_str<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if let Value::Scalar(scalar) = &self.tree.value
            && !matches!(scalar.kind, ScalarKind::String | ScalarKind::Null)
        {
            let error = DecodeError::new(DecodeErrorKind::Unquoted {
                found: self.tree.to_string(),
                text: scalar.text.to_string(),
            });
            return Err(error.with_span(self.tree, self.key));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_string<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.tree.is_null() {
            visitor.visit_none()
        } else {
            visitor
                .visit_some(self)
                .map_err(|error| error.with_span(self.tree, self.key))
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'t>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor
            .visit_newtype_struct(self)
            .map_err(|error| error.with_span(self.tree, self.key))
    }

    fn deserialize_struct<V: Visitor<'t>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.record_ignored(name, fields);
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'t>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let Some(variant) = self.tree.as_str() else {
            let error = DecodeError::new(DecodeErrorKind::WrongType {
                expected: format!("one of {}", format_list(variants.iter().copied())),
                found: self.tree.to_string(),
            });
            return Err(error.with_span(self.tree, self.key));
        };
        visitor
            .visit_enum(UnitVariant(variant))
            .map_err(|error| error.with_span(self.tree, self.key))
    }

    fn deserialize_ignored_any<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        <W: Visitor<'t>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf
        unit unit_struct seq tuple tuple_struct map identifier
    }
}

/// Elements of a list.
struct Items<'t> {
    node: TreeNode<'t>,
    items: std::slice::Iter<'t, Tree>,
}

impl<'t> SeqAccess<'t> for Items<'t> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'t>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        let Some(tree) = self.items.next() else {
            return Ok(None);
        };
        let node = self.node.child(tree, None);
        // An error can arise after the deserializer returns, for example in `try_from`.
        seed.deserialize(node)
            .map(Some)
            .map_err(|error| error.with_span(node.tree, node.key))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// Entries of a map.
struct MappingEntries<'t> {
    node: TreeNode<'t>,
    rest: indexmap::map::Iter<'t, Arc<str>, Entry>,
    value: Option<&'t Entry>,
}

impl<'t> MapAccess<'t> for MappingEntries<'t> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'t>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DecodeError> {
        let Some((key, entry)) = self.rest.next() else {
            return Ok(None);
        };
        self.value = Some(entry);
        seed.deserialize(BorrowedStrDeserializer::new(key))
            .map(Some)
            .map_err(|error: DecodeError| error.with_key_span(entry.key))
    }

    fn next_value_seed<V: DeserializeSeed<'t>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, DecodeError> {
        let Some(entry) = self.value.take() else {
            return Err(de::Error::custom("value requested before its key"));
        };
        let node = self.node.child(&entry.value, Some(entry.key));
        seed.deserialize(node)
            .map_err(|error| error.with_span(node.tree, node.key))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// Name of a variant without content.
struct UnitVariant<'t>(&'t str);

impl<'t> EnumAccess<'t> for UnitVariant<'t> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'t>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self), DecodeError> {
        let variant = seed.deserialize(BorrowedStrDeserializer::new(self.0))?;
        Ok((variant, self))
    }
}

impl<'t> VariantAccess<'t> for UnitVariant<'t> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'t>>(self, _: T) -> Result<T::Value, DecodeError> {
        Err(de::Error::invalid_type(Unexpected::Str(self.0), &"a map"))
    }

    fn tuple_variant<V: Visitor<'t>>(self, _: usize, _: V) -> Result<V::Value, DecodeError> {
        Err(de::Error::invalid_type(Unexpected::Str(self.0), &"a map"))
    }

    fn struct_variant<V: Visitor<'t>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, DecodeError> {
        Err(de::Error::invalid_type(Unexpected::Str(self.0), &"a map"))
    }
}
