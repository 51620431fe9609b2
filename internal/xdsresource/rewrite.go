package xdsresource

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/httpstatus"
	"github.com/dynxds/dynxds/internal/matching"
)

// Rewrite says how the method and the authority of an RPC are rewritten before it is sent
// to the backend.
type Rewrite struct {
	// Prefix replaces the part of the method that the route matched: its prefix, or
	// the whole method if the route matches whole methods (prefix_rewrite). Empty:
	// nothing is replaced.
	Prefix string
	// Regex rewrites the method (regex_rewrite). At most one of Prefix and Regex is
	// set.
	Regex *Substitution
	// Authority replaces the authority (host_rewrite_literal), unless it is empty.
	Authority string
	// AuthorityHeader is the request header, in lower case, whose value
	// replaces the authority, if the RPC has it (host_rewrite_header) and it is no longer than bounds.Authority.
	AuthorityHeader string
	// AutoHost replaces the authority by the hostname of the picked endpoint, if it
	// has one (auto_host_rewrite, gRFC A81).
	//
	// At most one of Authority, AuthorityHeader and AutoHost is set, and none
	// if the server is not a trusted_xds_server.
	AutoHost bool
}

// Substitution is a RegexMatchAndSubstitute.
type Substitution struct {
	// Regex finds what is replaced, anywhere in a string.
	Regex *regexp.Regexp
	// Template replaces each match, in the syntax of regexp.Regexp.Expand.
	Template string
}

// Replace returns s with all matches replaced.
func (s *Substitution) Replace(in string) string {
	return s.Regex.ReplaceAllString(in, s.Template)
}

// RewritePath returns the method to send on the wire for a method that the route matches.
// A query is not changed. It reports false if the result is not a path, that is, does not
// start with "/" or contains a blank or control character; the caller fails such an RPC
// with UNAVAILABLE.
func (r *Route) RewritePath(method string) (path string, ok bool) {
	if r.Rewrite == nil || r.Rewrite.Prefix == "" && r.Rewrite.Regex == nil {
		return method, true
	}
	path, query := matching.SplitQuery(method)
	if r.Rewrite.Regex != nil {
		path = r.Rewrite.Regex.Replace(path)
	} else {
		path = r.Rewrite.Prefix + path[r.Match.Covered(path):]
	}
	return path + query, isPath(path)
}

// RewriteAuthority returns the authority for an RPC that goes to c, an entry of the route's
// Forward, or "" if it is not rewritten.
//
// The caller must let two others win: an authority that the application set for the RPC,
// and, if Rewrite.AutoHost is set, the hostname of the endpoint. It must also see to it
// that the server's certificate is still verified.
func (r *Route) RewriteAuthority(rpc *matching.RPC, c *WeightedCluster) string {
	if r.Rewrite != nil {
		if r.Rewrite.Authority != "" {
			return r.Rewrite.Authority
		}
		if r.Rewrite.AuthorityHeader != "" {
			if value := rpc.FirstHeader(r.Rewrite.AuthorityHeader); value != "" && len(value) <= bounds.Authority && isVisible(value) {
				return value
			}
		}
	}
	return c.Authority
}

func isPath(s string) bool { return strings.HasPrefix(s, "/") && isVisible(s) }

// isVisible reports whether s has no blank and no control character in it.
func isVisible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

// rewrite decodes the rewrites of a RouteAction. It returns nil if there are
// none.
func (d *routeDecoder) rewrite(at *faults.Path, pb *routepb.RouteAction) *Rewrite {
	w := Rewrite{
		Prefix: pb.GetPrefixRewrite(),
		Regex:  d.substitution(at.Field("regex_rewrite"), pb.GetRegexRewrite()),
	}
	if w.Prefix != "" && pb.GetRegexRewrite() != nil {
		d.fault(at, "prefix_rewrite and regex_rewrite are both set")
	}
	switch host := pb.GetHostRewriteSpecifier().(type) {
	case *routepb.RouteAction_HostRewriteLiteral:
		w.Authority = d.authority(at.Field("host_rewrite_literal"), host.HostRewriteLiteral)
	case *routepb.RouteAction_HostRewriteHeader:
		if d.mayRewriteAuthority(at.Field("host_rewrite_header")) && host.HostRewriteHeader != "" {
			w.AuthorityHeader = d.headerName(at.Field("host_rewrite_header"), host.HostRewriteHeader)
		}
	case *routepb.RouteAction_AutoHostRewrite:
		w.AutoHost = host.AutoHostRewrite.GetValue() && d.mayRewriteAuthority(at.Field("auto_host_rewrite"))
	}
	if w == (Rewrite{}) {
		return nil
	}
	return &w
}

// authority reads an authority that replaces that of RPCs.
func (d *routeDecoder) authority(at *faults.Path, authority string) string {
	switch {
	case authority == "" || !d.mayRewriteAuthority(at):
		return ""
	case !isVisible(authority):
		d.fault(at, "%s is not an authority", faults.Quote(authority))
		return ""
	case len(authority) > bounds.Authority:
		d.fault(at, "has %d bytes, more than the %d of an authority", len(authority), bounds.Authority)
		return ""
	default:
		return authority
	}
}

// mayRewriteAuthority reports whether the server is trusted to rewrite the authority (gRFC
// A81).
func (d *routeDecoder) mayRewriteAuthority(at *faults.Path) bool {
	if !d.trusted {
		d.warn(at, "the authority is rewritten only if server_features of the server in the bootstrap configuration has trusted_xds_server (gRFC A81)")
	}
	return d.trusted
}

// maxSubstitution bounds the substitution text, since each reference to a group in it can
// insert the whole subject.
const maxSubstitution = 1 << 10

// substitution decodes a RegexMatchAndSubstitute. It returns nil if pb is nil
// or after an error.
func (d *validator) substitution(at *faults.Path, pb *matcherpb.RegexMatchAndSubstitute) *Substitution {
	if pb == nil {
		return nil
	}
	re := d.regex(at.Field("pattern"), pb.GetPattern(), false)
	if re.Regexp == nil {
		return nil
	}
	at = at.Field("substitution")
	if n := len(pb.GetSubstitution()); n > maxSubstitution {
		d.fault(at, "has %d bytes, more than %d", n, maxSubstitution)
		return nil
	}
	template, fault := templateOf(pb.GetSubstitution(), re.NumSubexp())
	if fault != "" {
		d.fault(at, "%s: %s", faults.Quote(pb.GetSubstitution()), fault)
		return nil
	}
	return &Substitution{Regex: re.Regexp, Template: template}
}

// substitutionEscape finds what package regexp writes differently, and what is wrong.
var substitutionEscape = regexp.MustCompile(`(?s)\$|\\.?`)

// templateOf turns a substitution of RE2, where \1 is the first group, into
// one of package regexp, or says what is wrong with it.
func templateOf(substitution string, groups int) (template, fault string) {
	template = substitutionEscape.ReplaceAllStringFunc(substitution, func(found string) string {
		group := strings.TrimPrefix(found, `\`)
		switch {
		case found == "$":
			return "$$"
		case group == `\`:
			return group
		case len(group) != 1 || group < "0" || group > "9":
			fault = cmp.Or(fault, `a \ must be followed by a digit or another \`)
		case int(group[0]-'0') > groups:
			fault = cmp.Or(fault, `the pattern has no group for \`+group)
		}
		return "${" + group + "}"
	})
	return template, fault
}

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
	newScheme := cmp.Or(r.Scheme, scheme)
	if r.Port != 0 {
		port = ":" + strconv.FormatUint(uint64(r.Port), 10)
	}
	host := cmp.Or(r.Host, hostFor(rpc.Authority, scheme, newScheme, port != ""))
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
		Regex:      d.substitution(at.Field("regex_rewrite"), pb.GetRegexRewrite()),
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
