package xdsresource

import (
	"regexp"
	"strings"
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
	path, query := splitQuery(method)
	if r.Rewrite.Regex != nil {
		path = r.Rewrite.Regex.Replace(path)
	} else {
		path = r.Rewrite.Prefix + path[r.Match.covered(path):]
	}
	return path + query, isPath(path)
}

// RewriteAuthority returns the authority for an RPC that goes to c, or "" if
// the route leaves it as it is or Rewrite.AutoHost decides. c is an entry of
// the route's Forward; its own rewrite goes before that of the route.
//
// An authority that the application chose for the RPC goes before both, and
// none of them may get around the check of the server's certificate: that is
// the caller's part.
func (r *Route) RewriteAuthority(rpc *RPC, c *WeightedCluster) string {
	switch {
	case c.Authority != "":
		return c.Authority
	case r.Rewrite == nil:
		return ""
	case r.Rewrite.AuthorityHeader != "":
		return firstHeader(rpc, r.Rewrite.AuthorityHeader)
	default:
		return r.Rewrite.Authority
	}
}

// AutoHostFor reports whether RPCs that go to c take the hostname of their
// endpoint as authority (gRFC A81).
func (r *Route) AutoHostFor(c *WeightedCluster) bool {
	return c.Authority == "" && r.Rewrite != nil && r.Rewrite.AutoHost
}

// covered returns how much of a path the match is about: its prefix, or all.
func (m *RouteMatch) covered(path string) int {
	if m.PathKind == PathPrefix || m.PathKind == PathSeparatedPrefix {
		return min(len(m.Path), len(path))
	}
	return len(path)
}

// splitQuery splits off the query and the fragment.
func splitQuery(method string) (path, query string) {
	if i := strings.IndexAny(method, "?#"); i >= 0 {
		return method[:i], method[i:]
	}
	return method, ""
}

func isPath(s string) bool {
	return strings.HasPrefix(s, "/") && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}
