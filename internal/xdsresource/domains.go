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

// Clusters returns the clusters that the routes of all virtual hosts forward or mirror
// RPCs to, each once.
func (rc *RouteConfiguration) Clusters() []string { return rc.table().clusters }

func (rc *RouteConfiguration) table() *domainTable {
	if rc.compiled != nil {
		return rc.compiled
	}
	return newDomainTable(rc.VirtualHosts)
}

// domainTable finds virtual hosts by authority, as indexes into
// RouteConfiguration.VirtualHosts.
type domainTable struct {
	*matching.Domains
	clusters []string
}

func newDomainTable(hosts []*VirtualHost) *domainTable {
	d := matching.NewDomains(len(hosts))
	for i, vh := range hosts {
		for _, domain := range vh.Domains {
			d.Add(domain, i)
		}
	}
	d.Sort()
	return &domainTable{Domains: d, clusters: clustersOfHosts(hosts)}
}

// clustersOfHosts returns the clusters of virtual hosts, each once.
func clustersOfHosts(hosts []*VirtualHost) []string {
	if len(hosts) == 1 {
		return hosts[0].Clusters()
	}
	var s nameSet
	for _, vh := range hosts {
		for _, name := range vh.Clusters() {
			s.add(name)
		}
	}
	return s.names
}
