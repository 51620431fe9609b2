package matching

import (
	"context"
	"math/rand/v2"
	"strings"

	"google.golang.org/grpc/metadata"
)

// RPC is what routes are matched against.
type RPC struct {
	// Method is the full method, "/package.Service/Method". It may have a query, which only
	// Route.Query and the header :path see.
	Method string
	// Authority is the header :authority. Empty: headers :authority and host are absent.
	Authority string
	// Scheme is the header :scheme, "http" or "https". Empty: "http".
	Scheme string
	// Context holds the outgoing metadata, which is copied at most once, and only if a
	// route that otherwise matches depends on a header. nil: no metadata.
	Context context.Context
	// Metadata, if not nil, returns the metadata instead of Context, with keys in lower
	// case. Unlike Context, a closure costs the caller an allocation.
	Metadata func() metadata.MD
	// ContentType is the content-type header. Empty: "application/grpc".
	ContentType string
	// Random returns random numbers for runtime_fraction. It is called only if a route that
	// otherwise matches has a fraction. nil: math/rand/v2.Uint64.
	Random func() uint64
}

// Draw returns a random number below a million, so that, as in Envoy, a fraction of 0 matches
// no RPC and one of a million every RPC.
func (rpc *RPC) Draw() uint32 {
	if rpc.Random == nil {
		return rand.Uint32N(Million)
	}
	return uint32(rpc.Random() % Million)
}

// Headers returns the headers of the RPC.
func (rpc *RPC) Headers() Headers { return Headers{rpc: rpc} }

// Headers looks up the headers of one RPC. It copies the metadata for the first header.
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

// builtin returns a header that gRPC fills in itself, and reports whether name is one.
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
