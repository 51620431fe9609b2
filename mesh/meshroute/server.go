package meshroute

import (
	"fmt"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

// This file has the Listeners of xDS servers (gRFC A36), which have the same security as the
// Clusters that lead to them.

// ServerListenerTemplate is the server_listener_resource_name_template in the bootstrap of servers
// whose Service has TLS. They have to listen on the address of the endpoint.
const ServerListenerTemplate = "grpc/server/%s"

// server is the Listener of one endpoint.
type server struct {
	endpoint int
	listener *Resource
}

// addServers adds the Listeners of the endpoints with IP addresses.
func (c *serviceCompiler) addServers() {
	s := c.service
	if !s.TLS.hasServers() {
		return
	}
	chain := filterChain(c.socket(s.TLS.server()))
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if !e.isIP() {
			continue
		}
		name := c.naming.resource(ListenerType, strings.Replace(ServerListenerTemplate, "%s", e.Address, 1))
		c.servers = append(c.servers, server{i, &Resource{TypeURL: ListenerType, Name: name, Message: &listenerpb.Listener{
			Name: name, Address: e.address(), FilterChains: []*listenerpb.FilterChain{chain},
		}}})
	}
}

// filterChain serves all RPCs. It is the same for every service with the same security, as a server may
// be an endpoint of several.
func filterChain(socket *corepb.TransportSocket) *listenerpb.FilterChain {
	manager := mustPack(&hcmpb.HttpConnectionManager{
		StatPrefix: "server",
		RouteSpecifier: &hcmpb.HttpConnectionManager_RouteConfig{RouteConfig: &routepb.RouteConfiguration{
			Name: "server", VirtualHosts: []*routepb.VirtualHost{{Name: "server", Domains: []string{"*"}, Routes: []*routepb.Route{{
				Match:  &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routepb.Route_NonForwardingAction{NonForwardingAction: &routepb.NonForwardingAction{}},
			}}}},
		}},
		HttpFilters: []*hcmpb.HttpFilter{httpFilter("router", false, &routerpb.Router{})},
	})
	return &listenerpb.FilterChain{
		Name: "server", TransportSocket: socket,
		Filters: []*listenerpb.Filter{{Name: "http", ConfigType: &listenerpb.Filter_TypedConfig{TypedConfig: manager}}},
	}
}

func (e *Endpoint) address() *corepb.Address {
	host, port, _ := ParseAddress(e.Address)
	return &corepb.Address{Address: &corepb.Address_SocketAddress{SocketAddress: &corepb.SocketAddress{
		Address: host, PortSpecifier: &corepb.SocketAddress_PortValue{PortValue: port},
	}}}
}

// compileServers collects the Listeners of all services. A server may be an endpoint of several, if
// these agree on its security.
func (b *builder) compileServers() {
	b.mesh.servers = make(map[string]*Resource)
	owners := make(map[string]*Service)
	var secured []*serviceResources
	for _, r := range b.mesh.services.All {
		if len(r.servers) > 0 {
			secured = append(secured, r)
		}
	}
	slices.SortFunc(secured, func(a, o *serviceResources) int { return strings.Compare(a.service.Name, o.service.Name) })
	for _, r := range secured {
		s := r.service
		for _, of := range r.servers {
			k := of.listener.Key()
			if first := b.mesh.servers[k]; first == nil {
				b.mesh.servers[k], owners[k] = of.listener, s
			} else if !proto.Equal(first.Message, of.listener.Message) {
				b.leaveOut("", document.Fault{
					File: s.Source.File, Line: s.Source.Line, Other: owners[k].Source.File, Path: fmt.Sprintf("endpoints[%d].address", of.endpoint),
					Problem: fmt.Sprintf("service %s: the server at %s has another tls by service %s (%s)",
						s.Name, s.Endpoints[of.endpoint].Address, owners[k].Name, owners[k].Source),
					Suggestion: "make mode and providers equal",
				})
			}
		}
	}
}
