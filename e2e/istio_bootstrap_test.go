package e2e_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/credentials/tls/certprovider"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// istioBootstrap is a bootstrap as Istio's agent (pkg/istio-agent/grpcxds) writes it: what
// encoding/json makes of its structs, with a Node of Envoy's API in it. The placeholders are
// the server_uri and the directory of the workload's certificates.
const istioBootstrap = `{
  "xds_servers": [
    {
      "server_uri": %q,
      "channel_creds": [
        {
          "type": "insecure"
        }
      ],
      "server_features": [
        "xds_v3"
      ]
    }
  ],
  "node": {
    "id": "sidecar~10.244.0.12~echo-7c9d.default~default.svc.cluster.local",
    "metadata": {
      "ANNOTATIONS": {
        "inject.istio.io/templates": "grpc-agent",
        "istio.io/rev": "default"
      },
      "APP_CONTAINERS": "echo",
      "CLUSTER_ID": "Kubernetes",
      "ENVOY_PROMETHEUS_PORT": 15090,
      "ENVOY_STATUS_PORT": 15021,
      "GENERATOR": "grpc",
      "INSTANCE_IPS": "10.244.0.12",
      "ISTIO_PROXY_SHA": "b1a2c3",
      "ISTIO_VERSION": "1.27.0",
      "LABELS": {
        "app": "echo",
        "security.istio.io/tlsMode": "istio",
        "service.istio.io/canonical-revision": "v1"
      },
      "MESH_ID": "cluster.local",
      "NAME": "echo-7c9d",
      "NAMESPACE": "default",
      "PILOT_SAN": [
        "istiod.istio-system.svc"
      ],
      "PROXY_CONFIG": {
        "concurrency": 2,
        "discoveryAddress": "istiod.istio-system.svc:15012",
        "proxyMetadata": {
          "OUTPUT_CERTS": "/var/lib/istio/data"
        },
        "statNameLength": 189
      },
      "SERVICE_ACCOUNT": "default",
      "WORKLOAD_NAME": "echo"
    },
    "locality": {
      "region": "eu-west",
      "zone": "eu-west-1"
    },
    "UserAgentVersionType": null
  },
  "certificate_providers": {
    "default": {
      "plugin_name": "file_watcher",
      "config": {
        "certificate_file": "%[2]s/cert-chain.pem",
        "private_key_file": "%[2]s/key.pem",
        "ca_certificate_file": "%[2]s/root-cert.pem",
        "refresh_interval": "900s"
      }
    }
  },
  "server_listener_resource_name_template": "xds.istio.io/grpc/lds/inbound/%%s"
}`

// Given the bootstrap file that Istio's agent writes and the agent's unix socket, then
// services are reached through it; and the server may rewrite the authority once the
// environment says that it is trusted, as the agent does not write that.
func TestIstioBootstrap(t *testing.T) {
	directly(t, "the node upstream has the id of the relay")
	const istioService = "echo.default.svc.cluster.local:7070"
	dir, err := os.MkdirTemp("", "istio") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "XDS")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	xdstest.ForwardFrom(t, listener, m.Addr())
	route := toCluster("b")
	route.GetRoute().HostRewriteSpecifier = &routepb.RouteAction_AutoHostRewrite{AutoHostRewrite: wrapperspb.Bool(true)}
	m.serveRewrittenAs(istioService, route, backend)

	for _, test := range []struct {
		name      string
		uri       string // Istio writes "unix:///" before a path, whether it is absolute or starts with "./"
		trusted   string
		authority string
	}{
		{"absolute path", "unix:///" + socket, "", istioService},
		{"relative path", "unix:///." + socket, "", istioService},
		{"trusted", "unix:///." + socket, "istiod.istio-system.svc:15010, unix:///." + socket, "rewritten"},
		{"another server trusted", "unix:///." + socket, "unix:///" + socket, istioService},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "grpc-bootstrap.json")
			put(t, file, fmt.Appendf(nil, istioBootstrap, test.uri, dir))
			t.Setenv("GRPC_XDS_BOOTSTRAP", file)
			t.Setenv("DYNXDS_TRUSTED_XDS_SERVERS", test.trusted)
			cc := dial(t, "xds:///"+istioService)
			eachKind(t, func(t *testing.T, k kind) {
				mustReach(t, cc, k, backend)
				if got := backend.Last().Authority; got != test.authority {
					t.Errorf("authority %q, want %q", got, test.authority)
				}
			})
		})
	}

	ca := testca.New(t)
	cert, key := ca.Leaf()
	for name, data := range map[string][]byte{"root-cert.pem": ca.PEM(), "cert-chain.pem": cert, "key.pem": key} {
		put(t, filepath.Join(dir, name), data)
	}
	config, err := bootstrap.Parse("istio", fmt.Appendf(nil, istioBootstrap, "unix:///"+socket, dir))
	if err != nil {
		t.Fatal(err)
	}
	provider, err := config.CertificateProviders["default"].Buildable.Build(certprovider.BuildOptions{WantRoot: true, WantIdentity: true})
	if err != nil {
		t.Fatal(err)
	}
	defer provider.Close()
	if material, err := provider.KeyMaterial(t.Context()); err != nil || len(material.Certs) != 1 || material.Roots == nil {
		t.Errorf("the certificate provider has %+v and error %v, want an identity and roots", material, err)
	}
	if got := config.ServerListenerTemplate; got != "xds.istio.io/grpc/lds/inbound/%s" {
		t.Errorf("server_listener_resource_name_template is %q", got)
	}

	node := m.Requests()[0].Node
	for key, want := range map[string]string{
		node.GetId(): "sidecar~10.244.0.12~echo-7c9d.default~default.svc.cluster.local",
		node.GetMetadata().GetFields()["GENERATOR"].GetStringValue():                                                     "grpc",
		node.GetMetadata().GetFields()["PROXY_CONFIG"].GetStructValue().GetFields()["discoveryAddress"].GetStringValue(): "istiod.istio-system.svc:15012",
		node.GetLocality().GetZone(): "eu-west-1",
	} {
		if key != want {
			t.Errorf("the node has %q, want %q", key, want)
		}
	}
}
