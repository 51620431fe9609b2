package matching

import (
	"cmp"
	"context"
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
	// ContentType is the content-type header. Empty: "application/grpc".
	ContentType string
}

// Headers returns the headers of the RPC.
func (rpc *RPC) Headers() Headers { return Headers{rpc: *rpc} }

// Headers looks up the headers of one RPC. It copies the metadata for the first header.
type Headers struct {
	rpc    RPC
	asked  bool
	values metadata.MD
}

// Metadata returns a copy of the metadata.
func (rpc *RPC) Metadata() metadata.MD {
	if rpc.Context == nil {
		return nil
	}
	md, _ := metadata.FromOutgoingContext(rpc.Context)
	return md
}

// Get returns the value of a header, several values joined with ",".
func (h *Headers) Get(name string) (value string, present bool) {
	if strings.HasSuffix(name, "-bin") {
		return "", false
	}
	if value, ok := h.rpc.builtin(name); ok {
		return value, value != ""
	}
	if !h.asked {
		h.values, h.asked = h.rpc.Metadata(), true
	}
	switch values := h.values[name]; len(values) {
	case 0:
		return "", false
	case 1:
		return values[0], true
	default:
		return strings.Join(values, ","), true
	}
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
		return cmp.Or(rpc.ContentType, "application/grpc"), true
	default:
		return "", false
	}
}

// SchemeName returns the header :scheme.
func (rpc *RPC) SchemeName() string { return cmp.Or(rpc.Scheme, "http") }

// FirstHeader returns the first value of a header, or "".
func (rpc *RPC) FirstHeader(name string) string {
	if strings.HasSuffix(name, "-bin") {
		return ""
	}
	if value, ok := rpc.builtin(name); ok {
		return value
	}
	if values := rpc.Metadata()[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}
