// Package attributes has the attributes of an RPC by name, such as request.path, for CEL expressions and for processors
// (gRFC A106, "CEL: Supported Variables").
package attributes

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/httpfilter"
)

// table has how to find each attribute. nil: gRPC does not set it.
var table = map[string]func(*RPC) (value any, ok bool){
	"request.path":      (*RPC).method,
	"request.url_path":  (*RPC).method,
	"request.host":      func(r *RPC) (any, bool) { return r.rpc.Authority, r.rpc.Authority != "" },
	"request.scheme":    nil,
	"request.method":    func(*RPC) (any, bool) { return "POST", true },
	"request.headers":   (*RPC).headers,
	"request.referer":   header("referer"),
	"request.useragent": header("user-agent"),
	"request.time":      nil,
	"request.id":        header("x-request-id"),
	"request.protocol":  nil,
	"request.query":     func(*RPC) (any, bool) { return "", true },
}

var names = slices.Sorted(maps.Keys(table))

// Names returns the names of all attributes, sorted. They must not be changed.
func Names() []string { return names }

// RPC is an RPC as a filter sees it when the RPC starts. It is not safe for concurrent use.
type RPC struct {
	ctx      context.Context
	rpc      *httpfilter.RPC
	metadata metadata.MD // nil: not read yet
}

// Of returns the RPC with the outgoing context ctx. It reads the metadata when the first attribute needs it.
func Of(ctx context.Context, rpc *httpfilter.RPC) *RPC { return &RPC{ctx: ctx, rpc: rpc} }

// Value returns an attribute: a map[string]string for request.headers, a string for the others. ok is false for an attribute that
// the RPC does not have, and for a name that is none of Names.
func (r *RPC) Value(name string) (value any, ok bool) {
	if find := table[name]; find != nil {
		return find(r)
	}
	return nil, false
}

func (r *RPC) method() (any, bool) { return r.rpc.Method, true }

func (r *RPC) read() metadata.MD {
	if r.metadata == nil {
		if r.metadata, _ = metadata.FromOutgoingContext(r.ctx); r.metadata == nil {
			r.metadata = metadata.MD{}
		}
	}
	return r.metadata
}

// header finds the attribute that is a header.
func header(name string) func(*RPC) (any, bool) {
	return func(r *RPC) (any, bool) {
		values := r.read()[name]
		return strings.Join(values, ","), len(values) > 0
	}
}

// headers are those of gRFC A41, "header": with pseudo headers, without hop-by-hop ones, binary ones in base64.
func (r *RPC) headers() (any, bool) {
	all := map[string]string{":method": "POST", ":path": r.rpc.Method, ":authority": r.rpc.Authority}
	for name, values := range r.read() {
		switch {
		case name == "te":
			continue
		case strings.HasSuffix(name, "-bin"):
			encoded := make([]string, len(values))
			for i, value := range values {
				encoded[i] = base64.StdEncoding.EncodeToString([]byte(value))
			}
			values = encoded
		}
		all[name] = strings.Join(values, ",")
	}
	return all, true
}
