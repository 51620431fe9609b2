package xdsresource

import "github.com/dynxds/dynxds/internal/matching"

// VirtualHost returns the virtual host for an authority, or nil: the one with
// that very domain, else the one with the longest matching "*suffix", else the
// longest matching "prefix*", else "*". Case does not matter. A wildcard stands
// for at least one character. A port in the authority is part of it.
//
// It may be called concurrently, and does not allocate if the authority is in
// lower case.
func (rc *RouteConfiguration) VirtualHost(authority string) *VirtualHost {
	if i := rc.table().Find(authority); i != matching.NoHost {
		return rc.VirtualHosts[i]
	}
	return nil
}

// Clusters returns the clusters that the routes of all virtual hosts forward
// RPCs or their copies to, as VirtualHost.Clusters does for one.
func (rc *RouteConfiguration) Clusters() []string { return rc.table().clusters }

func (rc *RouteConfiguration) table() *domainTable {
	if rc.compiled != nil {
		return rc.compiled
	}
	return newDomainTable(rc.VirtualHosts)
}

// domainTable finds virtual hosts by authority. They are numbers: the place among those
// of the RouteConfiguration.
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

// with returns the table for virtual hosts of the same domains, made from those that t
// is for.
func (t *domainTable) with(was, hosts []*VirtualHost) *domainTable {
	for i := range hosts {
		if !sameSlice(was[i].Clusters(), hosts[i].Clusters()) {
			return &domainTable{Domains: t.Domains, clusters: clustersOfHosts(hosts)}
		}
	}
	return t
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

// sameSlice reports whether two slices are one.
func sameSlice(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
