package balancer_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/clustertls"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// securities are what the clusters of a script may ask for, by name. Each of "old" and "new" does for the other; they differ in the server name
// that is sent. "strict" asks for more.
type securities struct {
	byName    map[string]*xdsresource.Security
	providers atomic.Int64 // certificate providers that are not closed
}

func newSecurities(t testing.TB) *securities {
	s := new(securities)
	provider := &bootstrap.CertificateProvider{Buildable: certprovider.NewBuildableConfig(t.Name(), nil,
		func(certprovider.BuildOptions) certprovider.Provider {
			s.providers.Add(1)
			return &countedProvider{&s.providers}
		})}
	s.byName = map[string]*xdsresource.Security{
		"none": nil, "old": decodeSecurity(t, `sni: "old"`, provider), "new": decodeSecurity(t, `sni: "new"`, provider),
		"strict": decodeSecurity(t, `sni: "old"`, provider, "san"),
	}
	return s
}

type countedProvider struct{ open *atomic.Int64 }

func (*countedProvider) KeyMaterial(context.Context) (*certprovider.KeyMaterial, error) {
	return nil, errors.New("not used")
}

func (p *countedProvider) Close() { p.open.Add(-1) }

func decodeSecurity(t testing.TB, fields string, provider *bootstrap.CertificateProvider, sans ...string) *xdsresource.Security {
	c := xdsmsg.EDSCluster("backend", "")
	c.TransportSocket = xdsmsg.TLSSocket(xdsmsg.With(xdsmsg.UpstreamTLS("", "roots", sans...), "%s", fields))
	value, err := xdsresource.ClusterType.Decode(xdsmsg.Any(c), xdsclient.DecodeOptions{Bootstrap: &bootstrap.Config{
		CertificateProviders: map[string]*bootstrap.CertificateProvider{"roots": provider},
	}})
	xdstest.NoError(t, err)
	return value.(*xdsresource.Cluster).Security
}

// useCredentials gives the channel credentials: those that leave security to the control plane, or others. Its connections linger for a second.
func (s *script) useCredentials(xds bool) {
	s.securities = newSecurities(s.T)
	pool := clustertls.NewPool(xds, nil, nil)
	if !xds {
		pool = clustertls.NewPool(xds, insecure.NewCredentials(), nil)
	}
	balancer.UseCredentials(s.policy, pool)
	balancer.SetLinger(s.policy, time.Second)
	if !xds {
		return
	}
	s.CC.Tag = func(b credentials.Bundle) string {
		for name, security := range s.securities.byName {
			of, release := pool.Acquire(backend, &xdsresource.Cluster{Security: security})
			release()
			if of == b {
				return strings.TrimSuffix("/"+name, "/none")
			}
		}
		return "/unknown"
	}
}
