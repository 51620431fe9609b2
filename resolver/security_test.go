package resolver

import (
	"testing"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// securedEDS is eds for a Cluster that asks for security.
func securedEDS(service string) *xdsresource.Cluster {
	c := eds(service)
	c.Security = &xdsresource.Security{Roots: &xdsresource.CertificateInstance{Provider: new(bootstrap.CertificateProvider)}}
	return c
}

// accepting is eds for a Cluster that accepts servers of the given names.
func accepting(t *testing.T, service string, names ...string) *xdsresource.Cluster {
	t.Helper()
	c := xdsmsg.EDSCluster("a", service)
	c.TransportSocket = xdsmsg.TLSSocket(xdsmsg.UpstreamTLS("", "", names...))
	value, err := xdsresource.ClusterType.Decode(xdsmsg.Any(c), xdsclient.DecodeOptions{})
	xdstest.NoError(t, err)
	return value.(*xdsresource.Cluster)
}
