package xdsresource

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/httpstatus"
	"github.com/dynxds/dynxds/internal/matching"
)

// DirectResponse ends matching RPCs at once, as if a proxy had answered.
type DirectResponse struct {
	// HTTPStatus is the status in the configuration, 200 to 599.
	HTTPStatus int
	// Code is the status code the RPC ends with: the one that gRPC maps HTTPStatus
	// to, which is never OK.
	Code codes.Code
	// Body is what the route sends, cut by bounds.Text if it is longer than bounds.ErrorText. It may be
	// empty; see Message.
	Body string
}

// Message returns the message of the status.
func (r *DirectResponse) Message() string {
	if r.Body != "" {
		return r.Body
	}
	return fmt.Sprintf("the route answers with HTTP status %d", r.HTTPStatus)
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
	// Prefix replaces the part of the method that the route matched, as in Rewrite.
	Prefix string
	// Regex rewrites the path.
	Regex *Substitution
	// StripQuery removes the query of the RPC.
	StripQuery bool
}

// Location returns the URL that an RPC is redirected to. match is that of the
// redirect's route.
func (r *Redirect) Location(match *matching.Route, rpc *matching.RPC) string {
	scheme, port := rpc.SchemeName(), ""
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

func (r *Redirect) path(match *matching.Route, method string) string {
	path, query := matching.SplitQuery(method)
	if r.StripQuery {
		query = ""
	}
	switch {
	case strings.Contains(r.Path, "?"):
		return r.Path
	case r.Path != "":
		path = r.Path
	case r.Prefix != "":
		path = r.Prefix + path[match.Covered(path):]
	case r.Regex != nil:
		path = r.Regex.Replace(path)
	}
	return path + query
}

// hostFor returns the authority, without its port if there is a new port, or if the port is
// the default of a scheme that is replaced.
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

// defaultMaxBody is RouteConfiguration.max_direct_response_body_size_bytes if
// that is not set.
const defaultMaxBody = 4096

func (d *routeDecoder) directResponse(at *faults.Path, pb *routepb.DirectResponseAction) *DirectResponse {
	code := pb.GetStatus()
	if code < 200 || code > 599 {
		d.fault(at.Field("status"), "must be an HTTP status from 200 to 599, is %d", code)
	}
	reply := &DirectResponse{HTTPStatus: int(code), Code: httpstatus.Code(int(code))}
	at = at.Field("body")
	switch body := pb.GetBody().GetSpecifier().(type) {
	case *corepb.DataSource_InlineString:
		reply.Body = body.InlineString
	case *corepb.DataSource_InlineBytes:
		reply.Body = strings.ToValidUTF8(string(body.InlineBytes), "\uFFFD")
	case nil:
	default:
		// RPCs must not disclose files and environment variables of the client's
		// machine.
		d.ignore(at, "the body must be inline_string or inline_bytes, is %s", whichOneof(pb.GetBody(), "specifier"))
	}
	if len(reply.Body) > d.maxBody {
		d.fault(at, "has %d bytes, more than max_direct_response_body_size_bytes, %d", len(reply.Body), d.maxBody)
	}
	if len(reply.Body) > bounds.ErrorText {
		reply.Body = bounds.Text(reply.Body, bounds.ErrorText)
	}
	return reply
}

// redirectStatuses are the values of RedirectAction.response_code.
var redirectStatuses = map[routepb.RedirectAction_RedirectResponseCode]int{
	routepb.RedirectAction_MOVED_PERMANENTLY:  http.StatusMovedPermanently,
	routepb.RedirectAction_FOUND:              http.StatusFound,
	routepb.RedirectAction_SEE_OTHER:          http.StatusSeeOther,
	routepb.RedirectAction_TEMPORARY_REDIRECT: http.StatusTemporaryRedirect,
	routepb.RedirectAction_PERMANENT_REDIRECT: http.StatusPermanentRedirect,
}

func (d *routeDecoder) redirect(at *faults.Path, pb *routepb.RedirectAction) *Redirect {
	to := &Redirect{
		HTTPStatus: redirectStatuses[pb.GetResponseCode()],
		Scheme:     strings.ToLower(pb.GetSchemeRedirect()),
		Host:       pb.GetHostRedirect(),
		Port:       pb.GetPortRedirect(),
		Path:       pb.GetPathRedirect(),
		Prefix:     pb.GetPrefixRewrite(),
		Regex:      d.match.substitution(at.Field("regex_rewrite"), pb.GetRegexRewrite()),
		StripQuery: pb.GetStripQuery(),
	}
	to.Code = httpstatus.Code(to.HTTPStatus)
	if to.HTTPStatus == 0 {
		d.fault(at.Field("response_code"), "is the unknown value %d", pb.GetResponseCode())
	}
	if pb.GetHttpsRedirect() {
		to.Scheme = "https"
	}
	if to.Port > 65535 {
		d.fault(at.Field("port_redirect"), "must be a port, is %d", to.Port)
	}
	for _, part := range [...]struct{ field, value string }{
		{"scheme_redirect", to.Scheme}, {"host_redirect", to.Host}, {"path_redirect", to.Path}, {"prefix_rewrite", to.Prefix},
	} {
		if !isVisible(part.value) {
			d.fault(at.Field(part.field), "%s has a blank or control character in it", faults.Quote(part.value))
		}
	}
	return to
}
