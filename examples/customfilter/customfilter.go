// Package customfilter is an example of a custom HTTP filter: import it
// into a program that dials xds:/// targets, and a control plane can put it
// into the path of the program's RPCs.
//
// It adds the tenant that RPCs are for as a header. Its configuration is a
// TypedStruct, so that no .proto file is needed:
//
//	http_filters:
//	- name: tenant
//	  typed_config:
//	    "@type": type.googleapis.com/xds.type.v3.TypedStruct
//	    type_url: type.googleapis.com/example.v1.Tenant
//	    value: {tenant: acme}
package customfilter

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
)

// Config is the filter's configuration, and that of routes that override it.
type Config struct{ Tenant string }

func init() {
	httpfilter.Register(httpfilter.HeaderFilter[Config]{
		Types: []string{"type.googleapis.com/example.v1.Tenant"},
		Parse: httpfilter.ParseStruct[Config],
		Start: func(ctx context.Context, rpc *httpfilter.RPC, c Config) (context.Context, error) {
			if c.Tenant == "" {
				return nil, status.Errorf(codes.PermissionDenied, "%s is not for this client", rpc.Method)
			}
			return metadata.AppendToOutgoingContext(ctx, "x-tenant", c.Tenant), nil
		},
	})
}
