package xdsresource

import (
	"regexp"
	"strings"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
)

// Rewrite says how the method and the authority change on their way to the
// backend.
type Rewrite struct {
	// Prefix replaces what the match of the route covers: its prefix, or the
	// whole method if it matches a whole one (prefix_rewrite). Empty: not.
	Prefix string
	// Regex rewrites the method (regex_rewrite). nil: not. At most one of
	// Prefix and Regex is set.
	Regex *Substitution
	// Authority replaces the authority (host_rewrite_literal). Empty: not.
	Authority string
	// AuthorityHeader is the request header, in lower case, whose value
	// replaces the authority, if the RPC has it (host_rewrite_header).
	AuthorityHeader string
	// AutoHost has the authority replaced by the hostname of the endpoint that
	// is picked, if it has one (auto_host_rewrite, gRFC A81).
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

// RewritePath returns the method to send on the wire for a method that the
// route matches. A query stays as it is. It reports false if the result is
// not a path, which starts with "/" and has no blank or control character in
// it; such an RPC is to fail with UNAVAILABLE.
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

// RewriteAuthority returns the authority for an RPC that goes to c, an entry
// of the route's Forward, or "" if it stays as it is. If Rewrite.AutoHost is
// set, the hostname of the endpoint goes before that.
//
// An authority that the application chose for the RPC goes before both, and
// none of them may get around the check of the server's certificate: that is
// the caller's part.
func (r *Route) RewriteAuthority(rpc *matching.RPC, c *WeightedCluster) string {
	if r.Rewrite != nil {
		if r.Rewrite.Authority != "" {
			return r.Rewrite.Authority
		}
		if r.Rewrite.AuthorityHeader != "" {
			if value := rpc.FirstHeader(r.Rewrite.AuthorityHeader); value != "" && isVisible(value) {
				return value
			}
		}
	}
	return c.Authority
}

func isPath(s string) bool { return strings.HasPrefix(s, "/") && isVisible(s) }

// isVisible reports whether s has no blank and no control character in it.
func isVisible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// rewrite decodes the rewrites of a RouteAction. It returns nil if there are
// none.
func (d *routeDecoder) rewrite(at *faults.Path, pb *routepb.RouteAction) *Rewrite {
	w := Rewrite{
		Prefix: pb.GetPrefixRewrite(),
		Regex:  d.match.substitution(at.Field("regex_rewrite"), pb.GetRegexRewrite()),
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

// authority reads an authority to use in the place of another.
func (d *routeDecoder) authority(at *faults.Path, authority string) string {
	switch {
	case authority == "" || !d.mayRewriteAuthority(at):
		return ""
	case !isVisible(authority):
		d.fault(at, "%s is not an authority", faults.Quote(authority))
		return ""
	default:
		return authority
	}
}

// mayRewriteAuthority reports whether the server may do so (gRFC A81).
func (d *routeDecoder) mayRewriteAuthority(at *faults.Path) bool {
	if !d.trusted {
		d.ignore(at, "the authority is rewritten only for a server with trusted_xds_server among its server_features in the bootstrap configuration (gRFC A81)")
	}
	return d.trusted
}
