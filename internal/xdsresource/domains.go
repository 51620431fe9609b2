package xdsresource

import "github.com/dynxds/dynxds/internal/matching"

// VirtualHost returns the virtual host for an authority, or nil. An exact domain is
// preferred to "*suffix", that to "prefix*", and that to "*"; among wildcards of a kind
// the longest wins. Case does not matter. A wildcard stands for at least one character.
// A port is part of the authority.
//
// It may be called concurrently, and does not allocate if the authority is in lower
// case.
func (rc *RouteConfiguration) VirtualHost(authority string) *VirtualHost {
	if i := rc.table().Find(authority); i != matching.NoHost {
		return rc.VirtualHosts[i]
	}
	return nil
}

func (rc *RouteConfiguration) table() *matching.Domains {
	if rc.compiled != nil {
		return rc.compiled
	}
	return domainsOf(rc.VirtualHosts)
}

// domainsOf finds virtual hosts by authority, as indexes.
func domainsOf(hosts []*VirtualHost) *matching.Domains {
	d := matching.NewDomains(len(hosts))
	for i, vh := range hosts {
		for _, domain := range vh.Domains {
			d.Add(domain, i)
		}
	}
	d.Sort()
	return d
}
