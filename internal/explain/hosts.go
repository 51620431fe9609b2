package explain

import (
	"fmt"
	"strings"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// chooseHost says which virtual host the channel uses, and returns it. Without one it ends the
// explanation.
func (e *explainer) chooseHost(rc *xdsresource.RouteConfiguration) *xdsresource.VirtualHost {
	authority := e.request.Authority
	chosen := rc.VirtualHost(authority)
	domain := ""
	if chosen != nil {
		domain = bestDomain(chosen.Domains, authority)
	}
	for i, vh := range rc.VirtualHosts {
		v := VirtualHost{Name: vh.Name, Domains: vh.Domains, Domain: bestDomain(vh.Domains, authority), At: e.raw.hostAt(i)}
		switch {
		case vh == chosen:
			v.Chosen, v.Reason = true, fmt.Sprintf("domain %q matches authority %q", domain, authority)
			e.raw.host = i
		case v.Domain != "":
			v.Reason = fmt.Sprintf("its domain %q matches too, but %q is more specific", v.Domain, domain)
		default:
			v.Reason = fmt.Sprintf("no domain matches authority %q", authority)
		}
		e.out.VirtualHosts = append(e.out.VirtualHosts, v)
	}
	if chosen == nil {
		e.fail("RouteConfiguration %q has no virtual host for authority %q; add it to the domains of one, or dial with grpc.WithAuthority",
			rc.Name, authority)
	}
	return chosen
}

// bestDomain returns the domain by which an authority is found, or "".
func bestDomain(domains []string, authority string) string {
	d := matching.NewDomains(len(domains))
	for i, domain := range domains {
		d.Add(domain, i)
	}
	d.Sort()
	if i := d.Find(authority); i != matching.NoHost {
		return domains[i]
	}
	return ""
}

// quotedList joins names for a text.
func quotedList(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(quoted, ", ")
}
