//! Decodes scalars of a lab that serde does not support directly: parsed texts, durations,
//! networks, sysctls and axis values.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use ipnetwork::IpNetwork;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use crate::decode::duration::{Bounded, Unbounded};

/// Decodes a string and parses it. A parser's error becomes the decoder's error.
pub(crate) fn parsed<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: fmt::Display,
{
    struct ParsedVisitor<T>(PhantomData<T>);

    impl<T> Visitor<'_> for ParsedVisitor<T>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }

    deserializer.deserialize_str(ParsedVisitor(PhantomData))
}

/// Decodes like [`parsed`], for a field that may be absent.
pub(crate) fn parsed_option<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: fmt::Display,
{
    parsed(deserializer).map(Some)
}

/// Decodes a duration such as `3s` or `1m 30s`, from 1 ms to 1 h.
pub(crate) fn duration<'de, D>(deserializer: D) -> Result<Option<Duration>, D::Error>
where
    D: Deserializer<'de>,
{
    parsed::<D, Bounded>(deserializer).map(|duration| Some(duration.0))
}

/// Decodes a duration whose limits [`crate::check::limits`] checks.
pub(crate) fn unbounded<'de, D>(deserializer: D) -> Result<Option<Duration>, D::Error>
where
    D: Deserializer<'de>,
{
    parsed::<D, Unbounded>(deserializer).map(|duration| Some(duration.0))
}

/// Decodes a list of durations.
pub(crate) fn durations<'de, D>(deserializer: D) -> Result<Option<Vec<Duration>>, D::Error>
where
    D: Deserializer<'de>,
{
    struct DurationItem(Duration);

    impl<'de> Deserialize<'de> for DurationItem {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            parsed::<D, Bounded>(deserializer).map(|duration| Self(duration.0))
        }
    }

    Vec::<DurationItem>::deserialize(deserializer)
        .map(|items| Some(items.into_iter().map(|item| item.0).collect()))
}

/// Error of parsing a network or an address with prefix length.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CidrError {
    /// The text has no `/` and prefix length.
    #[error("`{0}` has no prefix length; write for example `{0}/24`")]
    NoPrefix(String),
    /// The text is not an address with a valid prefix length.
    #[error("`{0}` is not an address with a prefix length, such as `10.0.0.0/24`")]
    InvalidFormat(String),
    /// The address of a subnet has host bits.
    #[error("`{text}` has host bits; the subnet is `{subnet}`")]
    HostBits {
        /// Text in the lab.
        text: String,
        /// Subnet with the host bits cleared.
        subnet: String,
    },
}

fn parse_cidr(text: &str) -> Result<IpNetwork, CidrError> {
    // The crate parses an address without prefix length as a single host. In a lab, the prefix
    // length was forgotten.
    if !text.contains('/') {
        return Err(match text.parse::<std::net::IpAddr>() {
            Ok(_) => CidrError::NoPrefix(text.to_owned()),
            Err(_) => CidrError::InvalidFormat(text.to_owned()),
        });
    }
    text.parse()
        .map_err(|_| CidrError::InvalidFormat(text.to_owned()))
}

/// Address with the prefix length of its subnet.
struct HostAddress(IpNetwork);

impl FromStr for HostAddress {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        parse_cidr(text).map(Self)
    }
}

/// Subnet without host bits.
struct Subnet(IpNetwork);

impl FromStr for Subnet {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let network = parse_cidr(text)?;
        if network.ip() != network.network() {
            return Err(CidrError::HostBits {
                text: text.to_owned(),
                subnet: format!("{}/{}", network.network(), network.prefix()),
            });
        }
        Ok(Self(network))
    }
}

/// Decodes an address with prefix length, such as `203.0.113.9/24`.
pub(crate) fn host_address<'de, D: Deserializer<'de>>(d: D) -> Result<IpNetwork, D::Error> {
    parsed::<D, HostAddress>(d).map(|address| address.0)
}

/// Decodes a subnet, such as `203.0.113.0/24`.
pub(crate) fn subnet<'de, D: Deserializer<'de>>(d: D) -> Result<IpNetwork, D::Error> {
    parsed::<D, Subnet>(d).map(|subnet| subnet.0)
}

/// Decodes like [`subnet`], for a field that may be absent.
pub(crate) fn subnet_option<'de, D>(deserializer: D) -> Result<Option<IpNetwork>, D::Error>
where
    D: Deserializer<'de>,
{
    subnet(deserializer).map(Some)
}

/// Decodes a list of subnets.
pub(crate) fn subnets<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<IpNetwork>, D::Error> {
    struct SubnetItem(IpNetwork);

    impl<'de> Deserialize<'de> for SubnetItem {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            subnet(deserializer).map(Self)
        }
    }

    Vec::<SubnetItem>::deserialize(d).map(|items| items.into_iter().map(|item| item.0).collect())
}

/// Decodes a list of addresses with prefix length.
pub(crate) fn host_addresses<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<IpNetwork>, D::Error> {
    struct AddressItem(IpNetwork);

    impl<'de> Deserialize<'de> for AddressItem {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            host_address(deserializer).map(Self)
        }
    }

    Vec::<AddressItem>::deserialize(d).map(|items| items.into_iter().map(|item| item.0).collect())
}

/// Value of a sysctl, in the format of its file. A lab may contain a number without quotes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SysctlValue(pub String);

impl<'de> Deserialize<'de> for SysctlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SysctlVisitor;

        impl Visitor<'_> for SysctlVisitor {
            type Value = SysctlValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number or a string")
            }

            fn visit_i64<E: de::Error>(self, n: i64) -> Result<SysctlValue, E> {
                Ok(SysctlValue(n.to_string()))
            }

            fn visit_u64<E: de::Error>(self, n: u64) -> Result<SysctlValue, E> {
                Ok(SysctlValue(n.to_string()))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<SysctlValue, E> {
                if text.contains('\n') {
                    return Err(E::custom("the value of a sysctl must be a single line"));
                }
                Ok(SysctlValue(text.to_owned()))
            }
        }

        deserializer.deserialize_any(SysctlVisitor)
    }
}

impl JsonSchema for SysctlValue {
    fn schema_name() -> Cow<'static, str> {
        "SysctlValue".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Value of the sysctl.",
            "type": ["integer", "string"],
        })
    }
}

/// Axis values, each of which matches. Numbers and booleans need no quotes:
/// `rpFilter: 0` matches the value `"0"` of an axis `{"0": [], "1": []}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AxisValues(pub Vec<String>);

impl AxisValues {
    /// Whether `value` is one of the values.
    #[must_use]
    pub fn contains(&self, value: &str) -> bool {
        self.0.iter().any(|v| v == value)
    }
}

/// Scalar as the text of an axis value.
struct AxisValue(String);

struct AxisVisitor;

impl Visitor<'_> for AxisVisitor {
    type Value = AxisValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of the axis (quote a number with a decimal point)")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<AxisValue, E> {
        Ok(AxisValue(value.to_string()))
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<AxisValue, E> {
        Ok(AxisValue(n.to_string()))
    }

    fn visit_u64<E: de::Error>(self, n: u64) -> Result<AxisValue, E> {
        Ok(AxisValue(n.to_string()))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<AxisValue, E> {
        Ok(AxisValue(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for AxisValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AxisVisitor)
    }
}

impl<'de> Deserialize<'de> for AxisValues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValuesVisitor;

        impl<'de> Visitor<'de> for ValuesVisitor {
            type Value = AxisValues;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a value of the axis or a list of values (quote a number with a decimal point)",
                )
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<AxisValues, E> {
                Ok(AxisValues(vec![AxisVisitor.visit_bool(value)?.0]))
            }

            fn visit_i64<E: de::Error>(self, n: i64) -> Result<AxisValues, E> {
                Ok(AxisValues(vec![AxisVisitor.visit_i64(n)?.0]))
            }

            fn visit_u64<E: de::Error>(self, n: u64) -> Result<AxisValues, E> {
                Ok(AxisValues(vec![AxisVisitor.visit_u64(n)?.0]))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<AxisValues, E> {
                Ok(AxisValues(vec![AxisVisitor.visit_str(text)?.0]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<AxisValues, A::Error> {
                let mut values = Vec::new();
                while let Some(AxisValue(value)) = seq.next_element()? {
                    values.push(value);
                }
                Ok(AxisValues(values))
            }
        }

        deserializer.deserialize_any(ValuesVisitor)
    }
}

impl JsonSchema for AxisValues {
    fn schema_name() -> Cow<'static, str> {
        "AxisValues".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Value of the axis, or a list of values, each of which matches.",
            "anyOf": [
                {"type": ["string", "integer", "boolean"]},
                {"type": "array", "items": {"type": ["string", "integer", "boolean"]}},
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn subnet_with_host_bits_error_names_subnet() {
        let error = "10.0.0.7/24".parse::<Subnet>().err();
        assert_eq!(
            error.map(|e| e.to_string()).as_deref(),
            Some("`10.0.0.7/24` has host bits; the subnet is `10.0.0.0/24`")
        );
        assert!("fd00::/64".parse::<Subnet>().is_ok());
    }

    #[test]
    fn address_without_prefix_is_refused() {
        let error = "10.0.0.7".parse::<HostAddress>().err();
        assert_eq!(error, Some(CidrError::NoPrefix("10.0.0.7".into())));
        for text in ["10.0.0.7/33", "10.0.0/24", "x", "fd00::1/129"] {
            let error = text.parse::<HostAddress>().err();
            assert_eq!(error, Some(CidrError::InvalidFormat(text.into())));
        }
    }

    #[test]
    fn axis_values_accept_scalars_and_lists() {
        let read = |json| serde_json::from_value::<AxisValues>(json).ok().map(|v| v.0);
        assert_eq!(read(json!("Local")), Some(vec!["Local".to_owned()]));
        assert_eq!(
            read(json!([0, "1", true])),
            Some(vec!["0".into(), "1".into(), "true".into()])
        );
        assert_eq!(read(json!(1.5)), None);
        assert_eq!(read(json!([[]])), None);
    }

    #[test]
    fn sysctl_number_is_kept_as_text() {
        let read = |json| {
            serde_json::from_value::<SysctlValue>(json)
                .ok()
                .map(|v| v.0)
        };
        assert_eq!(read(json!(0)).as_deref(), Some("0"));
        assert_eq!(read(json!("1024 65535")).as_deref(), Some("1024 65535"));
        assert_eq!(read(json!(1.5)), None);
    }
}
