// Package rbac makes the RBAC filter (gRFC A41) known. It is for servers:
// a client does not run it, but a RouteConfiguration for both sides may
// override it.
package rbac

import "github.com/dynxds/dynxds/httpfilter"

// The types of the filter's configurations.
const (
	TypeURL         = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"
	OverrideTypeURL = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBACPerRoute"
)

func init() { httpfilter.Register(httpfilter.ServerOnly(TypeURL, OverrideTypeURL)) }
