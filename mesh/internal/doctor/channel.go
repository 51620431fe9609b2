package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/internal/tlsadvice"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/errorcode"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// Channel examines what a program would get that dials a target with the bootstrap of a file, or of the environment if file is
// empty. Without a target, only the bootstrap and the management servers are examined. ctx bounds the examination: what has not
// arrived when it ends is reported as missing.
func Channel(ctx context.Context, file, target string) *Report {
	r := &Report{Of: target}
	if target == "" {
		r.Of = "bootstrap"
	}
	config, opts := r.bootstrap(file)
	if config == nil {
		return r
	}
	servers := config.Servers
	if target != "" {
		authority, endpoint, err := explain.ParseTarget(target)
		if err == nil {
			_, err = config.ListenerName(authority, endpoint)
		}
		if err != nil {
			r.fail("dial xds:///SERVICE, or add the authority to the bootstrap", "target", target, "%v", err)
			return r
		}
		if a, err := config.Authority(authority); authority != "" && err == nil {
			servers = a.Servers
		}
	}
	r.certificates(ctx, config)
	reachable := false
	for _, s := range servers {
		reachable = r.server(ctx, s, target == "") || reachable
	}
	if target != "" && reachable {
		r.channel(ctx, target, opts)
	}
	return r
}

const (
	// envFile and envInline are the variables that name a bootstrap.
	envFile, envInline = "GRPC_XDS_BOOTSTRAP", "GRPC_XDS_BOOTSTRAP_CONFIG"
	// keys is what to do about a key of the bootstrap.
	keys = "docs/reference/bootstrap.md has all keys"
)

// bootstrap reads the bootstrap. config is nil if it cannot be used; opts are for channels with it.
func (r *Report) bootstrap(file string) (config *bootstrap.Config, opts []dynxds.Option) {
	const step = "bootstrap"
	var err error
	if file == "" {
		config, err = bootstrap.FromEnv()
	} else {
		var data []byte
		if data, err = os.ReadFile(file); err == nil {
			config, err = bootstrap.Parse(file, data)
			opts = append(opts, dynxds.WithBootstrap(data))
		}
	}
	var several *bootstrap.Faults
	switch {
	case errors.Is(err, bootstrap.ErrNotConfigured):
		r.fail("write one with dynxds bootstrap --server HOST:PORT > bootstrap.json, and set GRPC_XDS_BOOTSTRAP to its path", step, "", "%v", err)
	case errors.As(err, &several):
		for _, f := range several.List[:min(len(several.List), maxLines)] {
			if f.Path == "" {
				r.fail("correct the JSON there: often a comma is missing, or is one too many", step, several.Source, "%v", errorcode.Marked(f, true))
				continue
			}
			r.fail(keys, step, several.Source, "%v", errorcode.Marked(f, true))
			f.File = cmp.Or(file, os.Getenv(envFile))
			lines := document.Excerpt(f)
			if text := f.Path + strings.Join(lines, ""); !strings.Contains(text, "config") && !strings.Contains(text, "@") { // which may have secrets
				r.Checks[len(r.Checks)-1].Excerpt = lines
			}
		}
	case err != nil:
		r.fail("correct the path, or the permissions of the file", step, "", "%v", err)
	default:
		r.ok(step, config.Source, "node %q, %s", config.Node.GetId(), faults.Count(len(config.Servers), "control plane"))
		if file == "" && os.Getenv(envFile) != "" && os.Getenv(envInline) != "" {
			r.warn("unset one of the two", step, envInline, "it is not read, as %s is set", envFile)
		}
		for _, text := range config.Warnings {
			r.warn(keys, step, config.Source, "%s", text)
		}
		if config.Node.GetId() == "" {
			r.warn("add \"node\": {\"id\": …} to the bootstrap, such as the name of the pod", step, "node.id", "it is missing: control planes tell clients apart by it, and some refuse those without one")
		}
		return config, opts
	}
	return nil, nil
}

// certificates reads the certificates of the bootstrap's certificate providers.
func (r *Report) certificates(ctx context.Context, config *bootstrap.Config) {
	const step = "certificates"
	for _, name := range slices.Sorted(maps.Keys(config.CertificateProviders)) {
		switch p := config.CertificateProviders[name]; {
		case p.Buildable == nil:
			r.warn("import the plugin in the program, or correct plugin_name", step, name, "this command has no plugin %q, so that it does not know the certificates", p.PluginName)
		case p.PluginName != certfiles.PluginName:
			r.ok(step, name, "of plugin %q, which was not asked", p.PluginName)
		default:
			files, err := certfiles.Parse(p.Config)
			if err == nil {
				provider := certfiles.NewProvider(files)
				defer provider.Close() // until then identities knows the certificate
				_, err = provider.KeyMaterial(ctx)
			}
			if err != nil {
				r.fail("correct the files of certificate_providers in the bootstrap, and their permissions", step, name, "%v", err)
				continue
			}
			r.ok(step, name, "the files can be read")
		}
	}
	r.identities(certfiles.Identities())
}

// identities checks how long certificates last that are in use.
func (r *Report) identities(list []certfiles.Identity) {
	const step = "certificate"
	for _, c := range list {
		if slices.ContainsFunc(r.Checks, func(before Check) bool { return before.Step == step && before.Name == c.File }) {
			continue
		}
		if text := livestate.CertificateEnd(c.Left()); c.Ending() {
			r.warn("renew the file, which is read again without a restart", step, c.File, "%s", text)
		} else {
			r.ok(step, c.File, "%s", text)
		}
	}
}

// server connects to a management server, and reports whether that worked. If no channel to a target will show whether the server
// answers by ADS, alone is true, and it is asked.
func (r *Report) server(ctx context.Context, s *bootstrap.Server, alone bool) bool {
	opts, release, err := s.DialOptions()
	if err != nil {
		r.fail("correct channel_creds and call_creds in the bootstrap", "credentials", s.URI, "%v", err)
		return false
	}
	defer release()
	if host, port, ok := hostOf(s.URI); ok && !r.reach(ctx, host, port, "the control plane", "server_uri in the bootstrap") {
		return false
	}
	cc, err := grpc.NewClient(s.URI, opts...)
	if err != nil {
		r.fail("correct server_uri in the bootstrap", "server", s.URI, "%v", err)
		return false
	}
	defer cc.Close()
	step := "TLS"
	if s.CredentialsType == "insecure" {
		step = "HTTP/2"
	}
	_, err = ask(ctx, cc)
	r.identities(certfiles.Identities()) // those of channel_creds
	if err != nil {
		fix := handshakes.about(err.Error())
		if step != "TLS" {
			fix = "is it a gRPC server? If it wants TLS, write the bootstrap with dynxds bootstrap --tls, and with --cert and --key if it wants a certificate of clients"
		}
		if strings.Contains(err.Error(), "invalid target address") {
			fix = "correct server_uri in the bootstrap: HOST:PORT, with brackets around an IPv6 address"
		}
		r.fail(fix, step, s.URI, "%v", err)
		return false
	}
	r.ok(step, s.URI, "connected, credentials of type %s", s.CredentialsType)
	if alone {
		r.ads(ctx, cc, s)
	}
	return true
}

// ads checks that a management server has ADS, over SotW or, if the bootstrap says that it has that, over delta.
func (r *Report) ads(ctx context.Context, cc *grpc.ClientConn, s *bootstrap.Server) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err := endedStream(ctx, cc, "StreamAggregatedResources")
	if s.HasFeature(bootstrap.FeatureDelta) && status.Code(err) == codes.Unimplemented {
		err = endedStream(ctx, cc, "DeltaAggregatedResources")
	}
	found := livestate.Server{URI: s.URI, Connected: true}
	switch said := status.Convert(err); {
	case err == io.EOF, said.Code() == codes.InvalidArgument: // it may want a request
	case said.Code() == codes.DeadlineExceeded:
		found.Connected = false
	case said.Code() == codes.Unimplemented && !strings.HasPrefix(said.Message(), "unexpected HTTP status"): // which may be a proxy's
		found.Error = "it answers gRPC, but is no xDS server"
	default:
		found.Error = fmt.Sprintf("%s: %s", said.Code(), tlsadvice.Reason(said.Message()))
	}
	r.servers(time.Now(), []livestate.Server{found})
}

// endedStream returns what a stream of ADS ends with that ends without a request: a server has to end it as well.
func endedStream(ctx context.Context, cc *grpc.ClientConn, method string) error {
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := cc.NewStream(ctx, desc, "/envoy.service.discovery.v3.AggregatedDiscoveryService/"+method)
	if err != nil {
		return err
	}
	_ = stream.CloseSend() // RecvMsg has the error
	return stream.RecvMsg(new(emptypb.Empty))
}

// reach resolves a host, and connects to its port: that of a server, which is named where.
func (r *Report) reach(ctx context.Context, host, port, server, where string) bool {
	if port == "" { // as gRPC does
		port, where = "443", where+", which has no port"
	}
	address := net.JoinHostPort(host, port)
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: address}}); err == nil && proxy != nil {
		r.ok("proxy", address, "gRPC connects through %s, of HTTPS_PROXY", proxy.Host) // which resolves the name
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if net.ParseIP(host) == nil {
		addresses, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil {
			r.fail(fmt.Sprintf("correct %s, or the name in DNS", where), "DNS", host, "%v", err)
			return false
		}
		r.ok("DNS", host, "%s", faults.Few(addresses, 4, ", "))
	}
	began := time.Now()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		fix := fmt.Sprintf("start %s, or correct %s", server, where)
		if ctx.Err() != nil || os.IsTimeout(err) {
			fix = fmt.Sprintf("look for a firewall or a NetworkPolicy between this host and %s, and at %s", server, where)
		}
		r.fail(fix, "TCP", address, "%v", err)
		return false
	}
	conn.Close()
	r.ok("TCP", address, "connected in %v", time.Since(began).Round(100*time.Microsecond))
	return true
}

// hostOf returns the host and the port in the URI of a server, if gRPC's resolver "dns" or none is for it. Without a port, that is empty.
func hostOf(uri string) (host, port string, ok bool) {
	if scheme, _, found := strings.Cut(uri, ":///"); found {
		u, err := url.Parse(uri)
		if err != nil || scheme != "dns" && scheme != "passthrough" {
			return "", "", false
		}
		uri = strings.TrimPrefix(u.Path, "/")
	}
	host, port, err := net.SplitHostPort(uri)
	if bare := strings.Trim(uri, "[]"); err != nil && (net.ParseIP(bare) != nil || !strings.ContainsAny(uri, ":/")) {
		host, err = bare, nil
	}
	return host, port, err == nil && host != "" && !strings.HasPrefix(host, "unix")
}

// channel opens a channel to a target, and checks what it gets.
func (r *Report) channel(ctx context.Context, target string, opts []dynxds.Option) {
	creds, _ := xds.NewClientCredentials(xds.ClientOptions{FallbackCreds: insecure.NewCredentials()}) // an error is that there are none
	cc, err := grpc.NewClient(target, append(dynxds.DialOptions(opts...), grpc.WithTransportCredentials(creds))...)
	if err != nil {
		r.fail("dial xds:///SERVICE", "channel", target, "%v", err)
		return
	}
	defer cc.Close()
	cc.Connect()
	s := await(ctx, target)
	if s == nil {
		r.fail("ask again with a longer --timeout", "channel", target, "it has no state yet")
		return
	}
	r.servers(time.Now(), s.Client.Servers)
	secure, known := "", r.survey(s)
	for _, name := range slices.Sorted(maps.Keys(s.Services)) {
		if host, port, ok := hostOf(s.Services[name]); ok {
			r.reach(ctx, host, port, "the service of filter "+faults.Quote(name), "its target_uri in the Listener")
		}
	}
	for _, c := range known {
		if value := c.Value(); value != nil {
			if value.Security != nil {
				secure = c.Name
			}
			r.endpoints(ctx, c, value)
		}
	}
	r.program(target, secure)
}

// program says what the program has to do, which is not examined. secure is a cluster that asks for TLS, or empty.
func (r *Report) program(target, secure string) {
	r.Program = []string{"produced zero addresses: import github.com/dynxds/dynxds, and dial " + target}
	if secure != "" {
		r.Program = append(r.Program, fmt.Sprintf("EOF, reset, or TLS errors: dial with google.golang.org/grpc/credentials/xds; other credentials ignore that cluster %q asks for TLS", secure))
	} else {
		r.Program = append(r.Program, "TLS errors: dial in plaintext, with google.golang.org/grpc/credentials/insecure, as the endpoints above were tried; no Cluster asks for TLS")
	}
}

// again is after how long the state of the channel is looked at again.
const again = 100 * time.Millisecond

// await returns the survey of a channel when nothing more is to be expected, or the last one when ctx ends.
func await(ctx context.Context, target string) (s *explain.Explanation) {
	byDNS := func(c dynxds.ChannelStatus) bool { return c.Target == target && c.Mode == dynxds.ModeDNS }
	for {
		if next, err := explain.SurveyProcess(ctx, target); err == nil {
			s = next
			if settled(s) || slices.ContainsFunc(dynxds.Channels(), byDNS) {
				return s
			}
		}
		if retries.Wait(ctx, again) != nil {
			return s
		}
	}
}

// settled reports whether a channel waits for nothing, or for a management server that fails.
func settled(s *explain.Explanation) bool {
	if s.Listener == nil {
		return false
	}
	if slices.ContainsFunc(s.Client.Servers, func(s livestate.Server) bool { return s.Error != "" }) {
		return true
	}
	awaited := func(r *explain.ResourceStatus) bool { return r != nil && !r.Cached && r.Missing().Waits != "" }
	return !awaited(s.Listener) && !awaited(s.RouteConfig) && !slices.ContainsFunc(s.Clusters, func(c *explain.Cluster) bool {
		return c.Waits != "" || awaited(c.Resource) || c.Assignment != nil && awaited(c.Assignment.Resource)
	})
}

// Target returns the target of a service, or the target itself.
func Target(arg string) string {
	if strings.Contains(arg, ":///") || strings.HasPrefix(arg, "xds:") {
		return arg
	}
	return fmt.Sprintf("xds:///%s", arg)
}
