package xdsresource

import (
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
)

// DirectResponse ends matching RPCs at once, as if a proxy had answered.
type DirectResponse struct {
	// HTTPStatus is the status in the configuration, 200 to 599.
	HTTPStatus int
	// Code is the status code the RPC ends with: what gRPC makes of
	// HTTPStatus, so never OK.
	Code codes.Code
	// Body is the message of the status. It may be empty.
	Body string
}

// Redirect ends matching RPCs at once, as if a proxy had answered with a
// redirect. gRPC does not follow redirects.
type Redirect struct {
	// HTTPStatus is 301, 302, 303, 307 or 308.
	HTTPStatus int
	// Code is the status code the RPC ends with.
	Code codes.Code
	// Scheme and Host replace those of the RPC. Empty: the RPC's.
	Scheme, Host string
	// Port replaces that of the RPC. 0: the RPC's, or none if Host is set.
	Port uint32
	// Path replaces the whole path, and the query if it has one of its own.
	// At most one of Path, Prefix and Regex is set.
	Path string
	// Prefix replaces what the match of the route covers, see Rewrite.
	Prefix string
	// Regex rewrites the path.
	Regex *Substitution
	// StripQuery has the query of the RPC left out.
	StripQuery bool
}

// CodeOfHTTP returns the status code of an RPC that is answered with an HTTP
// status and no grpc-status (gRPC's "HTTP to gRPC Status Code Mapping").
func CodeOfHTTP(status int) codes.Code {
	switch status {
	case http.StatusBadRequest:
		return codes.Internal
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusNotFound:
		return codes.Unimplemented
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return codes.Unavailable
	default:
		return codes.Unknown
	}
}

// Location returns the URL that an RPC is redirected to. match is that of the
// redirect's route.
func (r *Redirect) Location(match *RouteMatch, rpc *RPC) string {
	scheme, port := rpc.scheme(), ""
	newScheme := scheme
	if r.Scheme != "" {
		newScheme = r.Scheme
	}
	if r.Port != 0 {
		port = ":" + strconv.FormatUint(uint64(r.Port), 10)
	}
	host := r.Host
	if host == "" {
		host = hostFor(rpc.Authority, scheme, newScheme, port != "")
	}
	return newScheme + "://" + host + port + r.path(match, rpc.Method)
}

func (r *Redirect) path(match *RouteMatch, method string) string {
	path, query := splitQuery(method)
	if r.StripQuery {
		query = ""
	}
	switch {
	case strings.Contains(r.Path, "?"):
		return r.Path
	case r.Path != "":
		path = r.Path
	case r.Prefix != "":
		path = r.Prefix + path[match.covered(path):]
	case r.Regex != nil:
		path = r.Regex.Replace(path)
	}
	return path + query
}

// hostFor returns the authority without its port if there is a new one, or if
// it is the default one of a scheme that changes.
func hostFor(authority, oldScheme, newScheme string, newPort bool) string {
	colon := strings.LastIndexByte(authority, ':')
	if colon < 0 || colon < strings.LastIndexByte(authority, ']') {
		return authority
	}
	port := authority[colon:]
	isDefault := oldScheme == "http" && port == ":80" || oldScheme == "https" && port == ":443"
	if newPort || isDefault && newScheme != oldScheme {
		return authority[:colon]
	}
	return authority
}
