package command

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authzpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/meshtest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

// worlds start what the text of a case names in braces, and return an address or a path.
var worlds = map[string]func(*mistaken) string{
	"certs": func(w *mistaken) string { return w.certs() },
	"dir":   func(w *mistaken) string { return w.dir },
	"example": func(w *mistaken) string {
		dir, err := filepath.Abs(exampleMesh)
		xdstest.NoError(w.t, err)
		return dir
	},
	// The document of the page.
	"debug": func(w *mistaken) string {
		_, yaml, _ := strings.Cut(page(w.t), "\n```yaml\n")
		yaml, _, _ = strings.Cut(yaml, "```")
		return yaml
	},
	"nobody": func(w *mistaken) string {
		l := listen(w.t)
		defer l.Close()
		return l.Addr().String()
	},
	// A server that accepts connections and says nothing, and one that accepts RPCs and does not answer.
	"mute": func(w *mistaken) string {
		l := listen(w.t) // the kernel accepts for it
		w.t.Cleanup(func() { l.Close() })
		return l.Addr().String()
	},
	"unanswering": func(w *mistaken) string {
		return cmdtest.Serve(w.t, func(*grpc.Server) {}, grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			<-stream.Context().Done()
			return stream.Context().Err()
		}))
	},
	"web": func(w *mistaken) string {
		s := httptest.NewServer(http.NotFoundHandler())
		w.t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	},
	"backend": func(w *mistaken) string { return testutils.StartBackend(w.t, "b").Addr() },
	"failing": func(w *mistaken) string {
		b := testutils.StartBackend(w.t, "b")
		b.Fail(status.Error(codes.Internal, "an error"))
		return b.Addr()
	},
	"sick": func(w *mistaken) string { return withHealth(w.t, grpc_health_v1.HealthCheckResponse_NOT_SERVING) },
	"well": func(w *mistaken) string { return withHealth(w.t, grpc_health_v1.HealthCheckResponse_SERVING) },
	// With TLS, and with mTLS.
	"secure": func(w *mistaken) string { return testutils.StartBackend(w.t, "b", w.tls(tls.NoClientCert)).Addr() },
	"mutual": func(w *mistaken) string {
		return testutils.StartBackend(w.t, "b", w.tls(tls.RequireAndVerifyClientCert)).Addr()
	},
	// Processes that are not of dynxds, of which the last one changes.
	"other-secure":     func(w *mistaken) string { return another.serve(w.t, w.tls(tls.NoClientCert)) },
	"other-mutual":     func(w *mistaken) string { return another.serve(w.t, w.tls(tls.RequireAndVerifyClientCert)) },
	"changing":         func(w *mistaken) string { return changing().serve(w.t) },
	"serve":            func(w *mistaken) string { return w.serve() },
	"serve-permissive": func(w *mistaken) string { return w.serve("--permissive") },
	// With the flags of a file.
	"serve-with": func(w *mistaken) string { return w.serve(strings.Fields(golden.Read(w.t, w.dir+"/flags"))...) },
	// The page of "serve --page".
	"page": func(w *mistaken) string {
		return startServe(w.t, filepath.Join(w.dir, "mesh"), "--page=:0").pages("--page")
	},
	"serve-mutual": func(w *mistaken) string {
		return w.serve("--authority", "mesh", "--tls-cert", w.certs()+"/cert.pem", "--tls-key", w.certs()+"/key.pem", "--client-ca", w.certs()+"/ca.pem")
	},
	"relay":           func(w *mistaken) string { return w.relay() },
	"relay-of-one":    func(w *mistaken) string { return w.relay("--max-streams", "1") },
	"relay-one-group": func(w *mistaken) string { return w.relay("--one-group") },
	// A document with errors in the folder that is served.
	"faulty": func(w *mistaken) string {
		cmdtest.Write(w.t, filepath.Join(w.dir, "mesh"), "faulty.yaml", "kind: Service\nnme: shop\n")
		return "faulty"
	},
	// A client of {serve} that does not answer.
	"hanging": func(w *mistaken) string {
		const id = "hanging"
		stream := cmdtest.SotW(w.t, cmdtest.Dial(w.t, w.values["{serve}"]))
		stream.Exchange(&discoverypb.DiscoveryRequest{Node: &corepb.Node{Id: id}, TypeUrl: typeurl.Listener, ResourceNames: []string{"shop"}})
		return id
	},
	// One that rejects what it gets.
	"picky": func(w *mistaken) string {
		const id = "picky"
		stream := cmdtest.SotW(w.t, cmdtest.Dial(w.t, w.values["{serve}"]))
		request := &discoverypb.DiscoveryRequest{Node: &corepb.Node{Id: id}, TypeUrl: typeurl.Listener, ResourceNames: []string{"shop"}}
		request.ResponseNonce = stream.Exchange(request).GetNonce()
		request.ErrorDetail = &statuspb.Status{Message: "no \x1b[31mtaste\u202e"}
		stream.Send(request)
		return id
	},
	// A program that serves CSDS, and makes RPCs to "shop", or with the arguments in the file args.
	"client": func(w *mistaken) string {
		args := []string{"xds:///shop"}
		if text, err := os.ReadFile(filepath.Join(w.dir, "args")); err == nil {
			args = strings.Fields(string(text))
		}
		cmd := command(w.t, append([]string{"-csds"}, args...)...)
		cmd.Dir, cmd.Env = w.dir, append(cmd.Env, runAsProgram+"=1", "GRPC_XDS_BOOTSTRAP=b.json")
		out, err := cmd.StdoutPipe()
		xdstest.NoError(w.t, err)
		xdstest.NoError(w.t, cmd.Start())
		lines := bufio.NewScanner(out)
		if !lines.Scan() {
			w.t.Fatalf("the program ended: %v", cmd.Wait())
		}
		return lines.Text()
	},
	// Control planes with these resources, and one that does not answer for Listeners.
	"silent": func(w *mistaken) string {
		store := controlplane.NewStore()
		store.OnDemand(typeurl.Listener, func(_, _ []*controlplane.Demand) {})
		return meshtest.Start(w.t, meshtest.Options{Store: store}).Addr()
	},
	"no-routes": func(w *mistaken) string { return w.plane(way[:1]...) },
	"no-virtual-host": func(w *mistaken) string {
		return w.plane(way[0], xdsmsg.RouteConfig("shop", "elsewhere", xdsmsg.PrefixRoute("/", "c")))
	},
	"no-cluster": func(w *mistaken) string { return w.plane(way...) },
	"rejected-cluster": func(w *mistaken) string {
		return w.plane(append(way, xdsmsg.With(xdsmsg.EDSCluster("c", ""), `lb_policy: MAGLEV maglev_lb_config: {table_size: {value: 4}}`))...)
	},
	"no-assignment": func(w *mistaken) string { return w.plane(append(way, xdsmsg.EDSCluster("c", ""))...) },
	"no-endpoints": func(w *mistaken) string {
		return w.plane(append(way, xdsmsg.EDSCluster("c", ""), xdsmsg.SimpleEndpoints("c"))...)
	},
	"many-clusters": func(w *mistaken) string {
		routes := xdsmsg.RouteConfig("shop", "*")
		for i := range 102 {
			routes.VirtualHosts[0].Routes = append(routes.VirtualHosts[0].Routes, xdsmsg.PathRoute(fmt.Sprintf("/s/%d", i), fmt.Sprint("c", i)))
		}
		return w.plane(way[0], routes)
	},
	// With a filter that asks {nobody}.
	"guarded": func(w *mistaken) string {
		authz := xdsmsg.With(new(authzpb.ExtAuthz), `grpc_service { google_grpc { target_uri: %q stat_prefix: "s" } }`, w.expand("dns:///{nobody}"))
		return w.plane(xdsmsg.DefaultListener("shop", "shop", xdsmsg.Filter("authz", authz)), way[1],
			xdsmsg.EDSCluster("c", ""), xdsmsg.SimpleEndpoints("c", w.expand("{backend}")))
	},
}

// way is a Listener and routes that lead to the cluster c.
var way = []proto.Message{xdsmsg.DefaultListener("shop", "shop"), xdsmsg.RouteConfig("shop", "*", xdsmsg.PrefixRoute("/", "c"))}

// plane is a control plane with these resources.
func (w *mistaken) plane(resources ...proto.Message) (address string) {
	control := meshtest.StartServer(w.t)
	control.Set(w.t, resources...)
	return control.Addr()
}

// tls has the certificate of {certs}.
func (w *mistaken) tls(auth tls.ClientAuthType) grpc.ServerOption {
	pair, err := tls.LoadX509KeyPair(w.certs()+"/cert.pem", w.certs()+"/key.pem")
	xdstest.NoError(w.t, err)
	config := &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: auth, ClientCAs: x509.NewCertPool()}
	config.ClientCAs.AppendCertsFromPEM([]byte(golden.Read(w.t, w.certs()+"/ca.pem")))
	return grpc.Creds(credentials.NewTLS(config))
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	return l
}

// withHealth is an endpoint whose health service has a status.
func withHealth(t *testing.T, serving grpc_health_v1.HealthCheckResponse_ServingStatus) string {
	return cmdtest.Serve(t, func(s *grpc.Server) {
		h := health.NewServer()
		h.SetServingStatus("", serving)
		grpc_health_v1.RegisterHealthServer(s, h)
	})
}

// serve serves the folder of the case, and relay is a relay with the bootstrap of the case. The addresses of --admin are values.
func (w *mistaken) serve(args ...string) (address string) {
	p := startServe(w.t, filepath.Join(w.dir, "mesh"), append(args, "--admin=:0", "--poll=100ms")...)
	w.values["{serve-admin}"] = strings.Trim(strings.TrimPrefix(p.pages("--admin"), "http://"), "/")
	return p.address()
}

func (w *mistaken) relay(args ...string) (address string) {
	p := start(w.t, append([]string{"relay", "--away-delay", "100ms", "--admin=:0", "--bootstrap", filepath.Join(w.dir, "relay.json")}, args...)...)
	w.values["{relay-admin}"] = strings.Trim(strings.TrimPrefix(p.pages("--admin"), "http://"), "/")
	return p.address()
}
