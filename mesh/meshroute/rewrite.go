package meshroute

import (
	"net/http"
	"strings"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// replacement returns the replacement for the matched part of a path, "" if nothing changes. A slash at
// the end of a prefix counts neither in the match nor in the replacement (Gateway API,
// HTTPPathModifier).
func replacement(p *meshpolicy.PathModifier, s span) string {
	base := strings.TrimRight(p.Value, "/")
	switch {
	case s == wholePath && base == "":
		return "/"
	case s == wholePath:
		return base
	case s == anyPath && base == "":
		return ""
	default:
		return base + "/"
	}
}

// setRewrite sets the rewrites of a route.
func setRewrite(forward *routepb.RouteAction, w *meshpolicy.Rewrite, s span) {
	if w.Hostname != "" {
		forward.HostRewriteSpecifier = &routepb.RouteAction_HostRewriteLiteral{HostRewriteLiteral: w.Hostname}
	}
	switch {
	case w.Path == nil:
	case !w.Path.Full:
		forward.PrefixRewrite = replacement(w.Path, s)
	case s == wholePath:
		// prefix_rewrite replaces the whole path if that is matched.
		forward.PrefixRewrite = w.Path.Value
	default:
		forward.RegexRewrite = &matcherpb.RegexMatchAndSubstitute{
			Pattern:      regex(`^/.*$`),
			Substitution: strings.ReplaceAll(w.Path.Value, `\`, `\\`),
		}
	}
}

var redirectCodes = map[int]routepb.RedirectAction_RedirectResponseCode{
	http.StatusMovedPermanently:  routepb.RedirectAction_MOVED_PERMANENTLY,
	http.StatusFound:             routepb.RedirectAction_FOUND,
	http.StatusSeeOther:          routepb.RedirectAction_SEE_OTHER,
	http.StatusTemporaryRedirect: routepb.RedirectAction_TEMPORARY_REDIRECT,
	http.StatusPermanentRedirect: routepb.RedirectAction_PERMANENT_REDIRECT,
}

func redirectAction(r *meshpolicy.Redirect, s span) *routepb.RedirectAction {
	a := &routepb.RedirectAction{HostRedirect: r.Hostname, PortRedirect: r.Port, ResponseCode: redirectCodes[r.StatusCode]}
	if r.Scheme != "" {
		a.SchemeRewriteSpecifier = &routepb.RedirectAction_SchemeRedirect{SchemeRedirect: r.Scheme}
		if r.Port == 0 && r.Hostname == "" {
			// The scheme changes the port (Gateway API, HTTPRequestRedirectFilter.port).
			a.PortRedirect = map[string]uint32{"http": 80, "https": 443}[r.Scheme]
		}
	}
	switch {
	case r.Path == nil:
	case r.Path.Full:
		a.PathRewriteSpecifier = &routepb.RedirectAction_PathRedirect{PathRedirect: r.Path.Value}
	default:
		if replacement := replacement(r.Path, s); replacement != "" {
			a.PathRewriteSpecifier = &routepb.RedirectAction_PrefixRewrite{PrefixRewrite: replacement}
		}
	}
	return a
}
