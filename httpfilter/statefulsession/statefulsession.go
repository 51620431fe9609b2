// Package statefulsession is the filter
// envoy.extensions.filters.http.stateful_session.v3 (gRFCs A55, A60, A61, A75):
// it keeps the RPCs of a session with one endpoint, by a cookie or, as Envoy, by a header.
//
// The response of an RPC without the cookie sets one (metadata "set-cookie"),
// which names the endpoint and its cluster. An RPC that has it (metadata
// "cookie") goes to that cluster, if its route has it, and to that endpoint, if
// the cluster's common_lb_config.override_host_status allows. Otherwise the
// load-balancing policy picks, and the response sets another cookie.
//
// A session by header works likewise: the value of the header, in the metadata of the response and of further
// RPCs, is the value that a cookie has.
//
// The filter does not keep cookies: the application does, one for each session.
// It picks no endpoint either: the balancer does, by httpfilter.HostOverride.
package statefulsession

import (
	"cmp"
	"context"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/httpfilter/internal/protofilter"
	"github.com/dynxds/dynxds/internal/boundlog"
)

const (
	cookieHeader    = "cookie"
	setCookieHeader = "set-cookie"
)

var logger = boundlog.Component("dynxds")

func init() {
	httpfilter.Register(protofilter.New(parseConfig, parseOverride,
		func(info httpfilter.ClientInstanceInfo) httpfilter.ClientInstance { return &instance{info} }))
}

type instance struct{ httpfilter.ClientInstanceInfo }

// ClientInterceptor implements httpfilter.ClientInstance. An override takes the
// place of the configuration.
func (in *instance) ClientInterceptor(c, override httpfilter.Config) (httpfilter.Interceptor, error) {
	conf := cmp.Or(override, c).(*config)
	if *conf == (config{}) {
		return nil, nil
	}
	return &interceptor{config: conf, instance: in}, nil
}

type interceptor struct {
	*config
	instance *instance
	warned   sync.Once
}

// NewStream implements httpfilter.Interceptor.
func (i *interceptor) NewStream(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
	if !i.applies(rpc.Method) {
		return next.NewStream(ctx, rpc)
	}
	override := new(httpfilter.HostOverride)
	was, ok := i.session(ctx)
	if ok {
		override.Addresses = strings.Split(was.addresses, ",")
		// The cluster that the route has drawn may be another one (gRFC A60).
		if was.cluster != "" && was.cluster != rpc.Cluster && next.RouteHas(was.cluster) {
			rpc.Cluster = was.cluster
		}
	}
	rpc.HostOverride = override
	s, err := next.NewStream(ctx, rpc)
	if err != nil {
		return nil, err
	}
	update := func(md metadata.MD) {
		now := session{addresses: override.Host(), cluster: override.Cluster()}
		switch {
		case now.addresses == "" || now == was:
		case i.header != "":
			md.Set(i.header, encode(now))
		default:
			md.Append(setCookieHeader, i.setCookie(now))
		}
	}
	return httpfilter.EditResponse(s, update, func(md metadata.MD, only bool) {
		if only {
			update(md)
		}
	}), nil
}

// session returns the session in the RPC's cookie or header. It reports false if there is none that
// can be read.
func (i *interceptor) session(ctx context.Context) (session, bool) {
	md, _ := metadata.FromOutgoingContext(ctx)
	value, ok := i.sessionValue(md)
	if !ok {
		return session{}, false
	}
	s, err := decode(value)
	if err != nil {
		// Once: it is the application that decides how many such RPCs there are.
		i.warned.Do(func() {
			logger.Warningf("stateful session filter %q of %s: the %s of an RPC is ignored, and so is every other one like it: %v",
				i.instance.Name, i.instance.Target, i.config, err)
		})
		return session{}, false
	}
	return s, true
}
