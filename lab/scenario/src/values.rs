//! Scalars of a lab file that need more than serde's own reading: parsed texts,
//! durations, networks, sysctls, the values of an axis.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use ipnetwork::IpNetwork;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use super::duration::{Bounded, Unbounded};

/// Reads a string and parses it; the parser's error is handed on.
pub(super) fn parsed<'de, D, T>(deserializer: D) -> Result<T, D::Error>
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

/// As [`parsed`], for a field that may be absent.
pub(super) fn parsed_option<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: fmt::Display,
{
    parsed(deserializer).map(Some)
}

/// Reads a duration as `3s` or `1m 30s`, from 1 ms to 1 h.
pub(super) fn duration<'de, D>(deserializer: D) -> Result<Option<Duration>, D::Error>
where
    D: Deserializer<'de>,
{
    parsed::<D, Bounded>(deserializer).map(|duration| Some(duration.0))
}

/// Reads a duration whose bounds are checked with the lab.
pub(super) fn unbounded<'de, D>(deserializer: D) -> Result<Option<Duration>, D::Error>
where
    D: Deserializer<'de>,
{
    parsed::<D, Unbounded>(deserializer).map(|duration| Some(duration.0))
}

/// Reads a list of durations.
pub(super) fn durations<'de, D>(deserializer: D) -> Result<Option<Vec<Duration>>, D::Error>
where
    D: Deserializer<'de>,
{
    struct One(Duration);

    impl<'de> Deserialize<'de> for One {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            parsed::<D, Bounded>(deserializer).map(|duration| Self(duration.0))
        }
    }

    Vec::<One>::deserialize(deserializer)
        .map(|all| Some(all.into_iter().map(|one| one.0).collect()))
}

/// Why a text is no network or no address with its prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// No `/` and prefix length.
    #[error("`{0}` has no prefix length; write for example `{0}/24`")]
    NoPrefix(String),
    /// No address with a prefix length that fits it.
    #[error("`{0}` is not an address with a prefix length, such as `10.0.0.0/24`")]
    Form(String),
    /// A subnet whose address has bits set behind the prefix.
    #[error("`{written}` is an address inside a subnet; the subnet is `{subnet}`")]
    HostBits {
        /// As written.
        written: String,
        /// With the host bits cleared.
        subnet: String,
    },
}

fn cidr(text: &str) -> Result<IpNetwork, CidrError> {
    // The crate reads an address without a prefix as a single host, which in a
    // lab is a forgotten prefix.
    if !text.contains('/') {
        return Err(match text.parse::<std::net::IpAddr>() {
            Ok(_) => CidrError::NoPrefix(text.to_owned()),
            Err(_) => CidrError::Form(text.to_owned()),
        });
    }
    text.parse().map_err(|_| CidrError::Form(text.to_owned()))
}

/// An address with the prefix length of the subnet it lies in.
struct HostAddress(IpNetwork);

impl FromStr for HostAddress {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        cidr(text).map(Self)
    }
}

/// A subnet: no bits behind its prefix.
struct Subnet(IpNetwork);

impl FromStr for Subnet {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let network = cidr(text)?;
        if network.ip() != network.network() {
            return Err(CidrError::HostBits {
                written: text.to_owned(),
                subnet: format!("{}/{}", network.network(), network.prefix()),
            });
        }
        Ok(Self(network))
    }
}

/// Reads an address with its prefix length, `203.0.113.9/24`.
pub(super) fn host_address<'de, D: Deserializer<'de>>(d: D) -> Result<IpNetwork, D::Error> {
    parsed::<D, HostAddress>(d).map(|address| address.0)
}

/// Reads a subnet, `203.0.113.0/24`.
pub(super) fn subnet<'de, D: Deserializer<'de>>(d: D) -> Result<IpNetwork, D::Error> {
    parsed::<D, Subnet>(d).map(|subnet| subnet.0)
}

/// As [`subnet`], for a field that may be absent.
pub(super) fn subnet_option<'de, D>(deserializer: D) -> Result<Option<IpNetwork>, D::Error>
where
    D: Deserializer<'de>,
{
    subnet(deserializer).map(Some)
}

/// Reads a list of networks, each as [`subnet`].
pub(super) fn subnets<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<IpNetwork>, D::Error> {
    struct One(IpNetwork);

    impl<'de> Deserialize<'de> for One {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            subnet(deserializer).map(Self)
        }
    }

    Vec::<One>::deserialize(d).map(|all| all.into_iter().map(|one| one.0).collect())
}

/// As [`host_address`], for a list.
pub(super) fn host_addresses<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<IpNetwork>, D::Error> {
    struct One(IpNetwork);

    impl<'de> Deserialize<'de> for One {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            host_address(deserializer).map(Self)
        }
    }

    Vec::<One>::deserialize(d).map(|all| all.into_iter().map(|one| one.0).collect())
}

/// What a sysctl is set to, as it is written to its file. A lab may write a
/// number without quotes.
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
                    return Err(E::custom("the value of a sysctl is one line"));
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
            "description": "What the sysctl is set to.",
            "type": ["integer", "string"],
        })
    }
}

/// One value of an axis, or several of which any will do. Numbers and booleans
/// may be written without quotes: an axis `{"0": [], "1": []}` is matched by
/// `rpFilter: 0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AxisValues(pub Vec<String>);

impl AxisValues {
    /// Whether `value` is among them.
    #[must_use]
    pub fn contains(&self, value: &str) -> bool {
        self.0.iter().any(|v| v == value)
    }
}

/// One scalar as the text of an axis value.
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
            "description": "A value of the axis, or a list of which any matches.",
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
    fn a_subnet_with_host_bits_names_the_subnet() {
        let error = "10.0.0.7/24".parse::<Subnet>().err();
        assert_eq!(
            error.map(|e| e.to_string()).as_deref(),
            Some("`10.0.0.7/24` is an address inside a subnet; the subnet is `10.0.0.0/24`")
        );
        assert!("fd00::/64".parse::<Subnet>().is_ok());
    }

    #[test]
    fn a_forgotten_prefix_is_not_a_single_host() {
        let error = "10.0.0.7".parse::<HostAddress>().err();
        assert_eq!(error, Some(CidrError::NoPrefix("10.0.0.7".into())));
        for text in ["10.0.0.7/33", "10.0.0/24", "x", "fd00::1/129"] {
            let error = text.parse::<HostAddress>().err();
            assert_eq!(error, Some(CidrError::Form(text.into())));
        }
    }

    #[test]
    fn axis_values_take_bare_scalars_and_lists() {
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
    fn sysctls_are_kept_as_text() {
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
