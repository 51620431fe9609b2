package matching

import (
	"context"
	"math/rand/v2"
	"strings"

	"google.golang.org/grpc/metadata"
)

// RPC is what routes are matched against.
type RPC struct {
	// Method is the full method, "/package.Service/Method". It may have a
	// query, which only RouteMatch.Query and the header :path see.
	Method string
	// Authority is the header :authority, "host:port" of the channel or of
	// grpc.CallAuthority. Empty: headers :authority and host are not there.
	Authority string
	// Scheme is the header :scheme, "http" or "https". Empty: "http".
	Scheme string
	// Context holds the outgoing metadata. They are copied out of it at most
	// once, and only when a route that otherwise fits looks at a header. nil:
	// there are none.
	Context context.Context
	// Metadata, if not nil, is asked for the metadata in the place of Context.
	// Keys are in lower case. A closure costs its caller an allocation, which
	// Context does not.
	Metadata func() metadata.MD
	// ContentType is the content-type header. Empty: "application/grpc".
	ContentType string
	// Random returns random numbers for runtime_fraction; it is called only
	// when a route that otherwise fits has one. nil: math/rand/v2.Uint64.
	Random func() uint64
}

// Draw returns a random number below a million. So a fraction of 0 matches nothing and
// one of a million everything, as in Envoy.
func (rpc *RPC) Draw() uint32 {
	if rpc.Random == nil {
		return rand.Uint32N(Million)
	}
	return uint32(rpc.Random() % Million)
}

// Headers returns what looks up the headers of the RPC.
func (rpc *RPC) Headers() Headers { return Headers{rpc: rpc} }

// Headers looks up the headers of one RPC. The metadata are asked for when
// the first header is.
type Headers struct {
	rpc    *RPC
	asked  bool
	values metadata.MD
}

func (rpc *RPC) metadata() metadata.MD {
	switch {
	case rpc.Metadata != nil:
		return rpc.Metadata()
	case rpc.Context != nil:
		md, _ := metadata.FromOutgoingContext(rpc.Context)
		return md
	default:
		return nil
	}
}

// Get returns the value of a header, several values joined with ",".
func (h *Headers) Get(name string) (value string, present bool) {
	if strings.HasSuffix(name, "-bin") {
		return "", false
	}
	if value, ok := h.rpc.builtin(name); ok {
		return value, value != ""
	}
	switch values := h.All(name); len(values) {
	case 0:
		return "", false
	case 1:
		return values[0], true
	default:
		return strings.Join(values, ","), true
	}
}

// All returns the values of a header in the metadata.
func (h *Headers) All(name string) []string {
	if !h.asked {
		h.values, h.asked = h.rpc.metadata(), true
	}
	return h.values[name]
}

// builtin returns the headers that gRPC fills in itself, and reports whether
// name is one of them.
func (rpc *RPC) builtin(name string) (value string, ok bool) {
	switch name {
	case ":method":
		return "POST", true
	case ":path":
		return rpc.Method, true
	case ":authority", "host":
		return rpc.Authority, true
	case ":scheme":
		return rpc.SchemeName(), true
	case "content-type":
		if rpc.ContentType != "" {
			return rpc.ContentType, true
		}
		return "application/grpc", true
	default:
		return "", false
	}
}

// SchemeName returns the header :scheme.
func (rpc *RPC) SchemeName() string {
	if rpc.Scheme != "" {
		return rpc.Scheme
	}
	return "http"
}

// FirstHeader returns the first value of a header, or "".
func (rpc *RPC) FirstHeader(name string) string {
	if strings.HasSuffix(name, "-bin") {
		return ""
	}
	if value, ok := rpc.builtin(name); ok {
		return value
	}
	if values := rpc.metadata()[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}
