//! Objects as the API server returns them.

use serde_json::{Value, json};

use super::convert;
use super::request::{ApiError, RequestScope};
use super::resource::{Resource, VersionedResource};

/// Returns an error as a Kubernetes `Status` object.
pub(crate) fn status_object(refusal: &ApiError) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refusal.to_string(),
        "reason": refusal.reason(),
        "code": refusal.code(),
    })
}

/// Whether an object is in the namespace of a request.
pub(crate) fn is_in_namespace(object: &Value, scope: &RequestScope) -> bool {
    scope.namespace.as_deref().is_none_or(|namespace| {
        let object_namespace = object.pointer("/metadata/namespace");
        object_namespace.and_then(Value::as_str) == Some(namespace)
    })
}

/// Returns an object in the requested API version.
pub(crate) fn in_version(object: &Value, form: VersionedResource) -> Value {
    if form.resource == Resource::EndpointSlices {
        return convert::to_version(object, form.api_version);
    }
    let mut object = object.clone();
    object["apiVersion"] = json!(form.api_version);
    object
}
