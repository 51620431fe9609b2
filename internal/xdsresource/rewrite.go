package xdsresource

import (
	"regexp"
	"strconv"
	"strings"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
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
func (d *matchDecoder) substitution(at *faults.Path, pb *matcherpb.RegexMatchAndSubstitute) *Substitution {
	if pb == nil {
		return nil
	}
	re := d.compile(at.Field("pattern"), pb.GetPattern(), false)
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

// templateOf turns a substitution of RE2, where \1 is the first group, into
// one of package regexp, or says what is wrong with it.
func templateOf(substitution string, groups int) (template, fault string) {
	var b strings.Builder
	for rest := substitution; rest != ""; {
		c := rest[0]
		rest = rest[1:]
		switch {
		case c == '$':
			b.WriteString("$$")
		case c != '\\':
			b.WriteByte(c)
		case rest != "" && rest[0] == '\\':
			b.WriteByte('\\')
			rest = rest[1:]
		case rest != "" && '0' <= rest[0] && rest[0] <= '9':
			group := int(rest[0] - '0')
			if group > groups {
				return "", `the pattern has no group for \` + strconv.Itoa(group)
			}
			b.WriteString("${" + strconv.Itoa(group) + "}")
			rest = rest[1:]
		default:
			return "", `a \ must be followed by a digit or another \`
		}
	}
	return b.String(), ""
}
