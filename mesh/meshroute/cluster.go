package meshroute

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	sessionpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// serviceResources are the resources of a service that do not depend on the routes to it.
type serviceResources struct {
	// service, subsets and sessions (of routes) are the input.
	service  *Service
	subsets  meshpolicy.Subsets
	sessions bool
	list     []*Resource
	// empty are the ids of subsets without an endpoint.
	empty map[string]bool
	// keys are those that select among the variants in list.
	keys []string
	// servers are the Listeners of endpoints that are xDS servers.
	servers []server
	// reports are on the service by itself.
	reports []Report
}

// resources returns all; nil has none.
func (r *serviceResources) resources() []*Resource {
	if r == nil {
		return nil
	}
	return r.list
}

// serviceCompiler makes the resources of a service.
type serviceCompiler struct {
	serviceResources
	naming naming
	places places
	// err is the first one: of a text that is not UTF-8, or of one that is too long for a parameter.
	err error
}

// compileService returns the Listener of a service, and a Cluster and a ClusterLoadAssignment for the
// service and each of the subsets.
func compileService(n naming, places places, s *Service, subsets meshpolicy.Subsets, sessions bool) (*serviceResources, error) {
	c := &serviceCompiler{naming: n, places: places}
	c.serviceResources = serviceResources{service: s, subsets: subsets, sessions: sessions, empty: make(map[string]bool), reports: s.reports()}
	c.addListeners()
	c.addServers()
	socket := c.socket(s.TLS.client())
	for _, id := range append([]string{s.Name}, slices.Sorted(maps.Keys(subsets))...) {
		cluster := n.cluster(id)
		proto.Merge(cluster, s.Cluster)
		cluster.TransportSocket, cluster.Metadata = socket, places.cluster(s)
		c.add(ClusterType, cluster.GetName(), cluster)
		if s.ExternalName != "" {
			s.resolve(cluster)
		} else {
			c.addEndpoints(id)
		}
	}
	return &c.serviceResources, c.err
}

func (c *serviceCompiler) add(typeURL, name string, m proto.Message) {
	c.list = append(c.list, &Resource{TypeURL: typeURL, Name: name, Service: c.service.Name, Message: m})
}

// pack is for messages with texts of the service.
func (c *serviceCompiler) pack(m proto.Message) *anypb.Any {
	packed, err := pack(m)
	c.err = cmp.Or(c.err, err)
	return packed
}

// addEndpoints adds the ClusterLoadAssignment of a subset, or of all endpoints, with the variants of it that some clients get.
func (c *serviceCompiler) addEndpoints(id string) {
	variants := append([]preference{{}}, c.service.preferences(c.subsets[id])...) // the first one is for all other clients
	for _, v := range variants {
		assignment := c.assignment(id, v.rank)
		c.add(EndpointsType, assignment.GetClusterName(), assignment)
		if v.key == "" && len(assignment.GetEndpoints()) == 0 {
			c.empty[id] = true
		}
		if len(variants) > 1 {
			c.setParameters(v.key, v.value, v.specificity)
		}
	}
}

// setParameters makes what was added last a variant for the clients with a value of a key. An empty key is all clients.
func (c *serviceCompiler) setParameters(key, value string, specificity int) {
	values := map[string]string{meshpolicy.SpecificityKey: strconv.Itoa(specificity)}
	if key != "" {
		values[key] = value
		if !slices.Contains(c.keys, key) {
			c.keys = append(c.keys, key)
		}
	}
	parameters, err := dynparam.NewParameters(values)
	c.list[len(c.list)-1].Parameters, c.err = parameters, cmp.Or(c.err, err)
}

// resolve makes a Cluster one of the service's external name.
func (s *Service) resolve(cluster *clusterpb.Cluster) {
	at := (&Endpoint{Address: s.ExternalName}).address()
	cluster.ClusterDiscoveryType, cluster.EdsClusterConfig = &clusterpb.Cluster_Type{Type: clusterpb.Cluster_LOGICAL_DNS}, nil
	cluster.LoadAssignment = &endpointpb.ClusterLoadAssignment{
		ClusterName: cluster.GetName(),
		Endpoints: []*endpointpb.LocalityLbEndpoints{{LbEndpoints: []*endpointpb.LbEndpoint{{
			HostIdentifier: &endpointpb.LbEndpoint_Endpoint{Endpoint: &endpointpb.Endpoint{Address: at}},
		}}}},
	}
}

// deadID is the id of a Cluster without endpoints. No subset has it, as it has no "=". It is part of the
// error of RPCs in some clients.
func deadID(service string) string { return service + ";redirects-are-not-followed" }

// emptyCluster returns a Cluster without endpoints and its assignment.
func (n naming) emptyCluster(id, service string) []*Resource {
	cluster := n.cluster(id)
	name := cluster.GetEdsClusterConfig().GetServiceName()
	return []*Resource{
		{TypeURL: ClusterType, Name: cluster.GetName(), Service: service, Message: cluster},
		{TypeURL: EndpointsType, Name: name, Service: service, Message: &endpointpb.ClusterLoadAssignment{ClusterName: name}},
	}
}

// ads is the config source of all resources: the client's ADS stream.
func ads() *corepb.ConfigSource {
	return &corepb.ConfigSource{
		ResourceApiVersion:    corepb.ApiVersion_V3,
		ConfigSourceSpecifier: &corepb.ConfigSource_Ads{Ads: &corepb.AggregatedConfigSource{}},
	}
}

// addListeners adds the Listener, under all names.
func (c *serviceCompiler) addListeners() {
	s := c.service
	manager := &hcmpb.HttpConnectionManager{
		StatPrefix: s.Name,
		RouteSpecifier: &hcmpb.HttpConnectionManager_Rds{Rds: &hcmpb.Rds{
			ConfigSource: ads(), RouteConfigName: c.naming.resource(RouteConfigurationType, s.Name),
		}},
		HttpFilters: slices.Clone(s.Filters),
	}
	if c.sessions && s.ownSessions() == nil {
		manager.HttpFilters = append(manager.HttpFilters, httpFilter(sessionFilter, true, &sessionpb.StatefulSession{}))
	}
	manager.HttpFilters = append(manager.HttpFilters, httpFilter("router", false, &routerpb.Router{}))
	listener, metadata := &listenerpb.ApiListener{ApiListener: c.pack(manager)}, c.places.listener(s)
	for _, a := range append([]Alias{{Name: s.Name}}, s.Aliases...) {
		name := c.naming.resource(ListenerType, a.Name)
		c.add(ListenerType, name, &listenerpb.Listener{Name: name, ApiListener: listener, Metadata: metadata})
		if a.Namespace != "" {
			c.setParameters(meshpolicy.NamespaceKey, a.Namespace, 1)
		}
	}
}

func httpFilter(name string, optional bool, config proto.Message) *hcmpb.HttpFilter {
	return &hcmpb.HttpFilter{Name: name, IsOptional: optional, ConfigType: &hcmpb.HttpFilter_TypedConfig{TypedConfig: mustPack(config)}}
}

func (n naming) cluster(id string) *clusterpb.Cluster {
	return &clusterpb.Cluster{
		Name:                 n.resource(ClusterType, id),
		ClusterDiscoveryType: &clusterpb.Cluster_Type{Type: clusterpb.Cluster_EDS},
		EdsClusterConfig: &clusterpb.Cluster_EdsClusterConfig{
			EdsConfig: ads(), ServiceName: n.resource(EndpointsType, id),
		},
		LbPolicy: clusterpb.Cluster_ROUND_ROBIN,
		// Without it Envoy uses HTTP/1.1. Its successor, HttpProtocolOptions, is an extension
		// that some tools cannot print.
		//lint:ignore SA1019 the successor is what grpcdebug cannot print
		Http2ProtocolOptions: &corepb.Http2ProtocolOptions{},
	}
}

// group is the endpoints of one locality and priority.
type group struct {
	locality Locality
	priority uint32
}

func (g group) compare(o group) int {
	return cmp.Or(
		cmp.Compare(g.priority, o.priority),
		cmp.Compare(g.locality.Region, o.locality.Region),
		cmp.Compare(g.locality.Zone, o.locality.Zone),
		cmp.Compare(g.locality.SubZone, o.locality.SubZone),
	)
}

// isIP reports whether the host is an IP address.
func (e *Endpoint) isIP() bool {
	host, _, _ := ParseAddress(e.Address)
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Zone() == ""
}

// assignment returns the endpoints of a subset. rank says for each how many priorities lower it is than by itself, and whether
// it is wanted at all; nil wants all as they are. The weight of a locality, unless it is given, is the
// sum of those of its endpoints that get RPCs, so that these are relative to each other across localities; it is at
// least 1, as clients do not read localities of weight 0. For a hash policy there is one locality in place of such: clients without
// gRFC A113 multiply the weights of localities and endpoints. It has no name, so that it stays the same whatever zones there are.
func (c *serviceCompiler) assignment(id string, rank func(*Endpoint) (lower uint32, wanted bool)) *endpointpb.ClusterLoadAssignment {
	s, groups := c.service, make(map[group]*endpointpb.LocalityLbEndpoints)
	oneLocality := len(s.LocalityWeights) == 0 && s.hashes()
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		lower, wanted := uint32(0), true
		if rank != nil {
			lower, wanted = rank(e)
		}
		if !e.has(c.subsets[id]) || !wanted {
			continue
		}
		locality := e.Locality
		if oneLocality {
			locality = Locality{}
		}
		key := group{locality, (maxRank+1)*e.Priority + lower}
		g := groups[key]
		if g == nil {
			g = &endpointpb.LocalityLbEndpoints{
				Locality:            &corepb.Locality{Region: locality.Region, Zone: locality.Zone, SubZone: locality.SubZone},
				LoadBalancingWeight: &wrapperspb.UInt32Value{},
			}
			groups[key] = g
		}
		m := e.message(c.places)
		if h := m.GetHealthStatus(); h == corepb.HealthStatus_HEALTHY || h == corepb.HealthStatus_UNKNOWN {
			g.LoadBalancingWeight.Value += max(e.Weight, 1)
		}
		g.LbEndpoints = append(g.LbEndpoints, m)
	}
	a := &endpointpb.ClusterLoadAssignment{ClusterName: c.naming.resource(EndpointsType, id)}
	priority, last := uint32(0), uint32(0)
	for i, key := range slices.SortedFunc(maps.Keys(groups), group.compare) {
		if i > 0 && key.priority != last {
			priority++
		}
		last = key.priority
		weight := groups[key].LoadBalancingWeight
		weight.Value = max(cmp.Or(s.LocalityWeights[key.locality], weight.Value), 1)
		if oneLocality {
			weight.Value = 1
		}
		groups[key].Priority = priority
		a.Endpoints = append(a.Endpoints, groups[key])
	}
	return a
}

func (e *Endpoint) message(places places) *endpointpb.LbEndpoint {
	at := &endpointpb.Endpoint{Address: e.address(), Hostname: e.Hostname}
	for _, address := range e.AdditionalAddresses {
		at.AdditionalAddresses = append(at.AdditionalAddresses, &endpointpb.Endpoint_AdditionalAddress{Address: (&Endpoint{Address: address}).address()})
	}
	return &endpointpb.LbEndpoint{
		HostIdentifier:      &endpointpb.LbEndpoint_Endpoint{Endpoint: at},
		HealthStatus:        cmp.Or(e.Health, corepb.HealthStatus_HEALTHY),
		LoadBalancingWeight: wrapperspb.UInt32(max(e.Weight, 1)),
		Metadata:            places.endpoint(e),
	}
}

// isServiceName reports whether a text can be the name of a service, with or without a port.
func isServiceName(text string) bool {
	name, port, hasPort := strings.Cut(text, ":")
	return meshpolicy.IsName(name) && (!hasPort || meshpolicy.IsName(port))
}

// ParseAddress returns the host and the port of host:port. Both have one form, however they are written.
func ParseAddress(address string) (host string, port uint32, err error) {
	host, number, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return "", 0, fmt.Errorf("%q is not an address; write it as host:port, an IPv6 address in brackets", address)
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("%q is not a port; use a number from 1 to 65535", number)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.String()
	} else if hasBlank(host) || strings.ContainsAny(host, "[]:/%") {
		return "", 0, fmt.Errorf("%q is neither an IP address nor a host name", host)
	}
	return host, uint32(n), nil
}

// hasBlank reports whether a text has characters that clients accept in no host.
func hasBlank(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
}

// Check returns the errors of a service, by the paths in its document.
func (s *Service) Check() []document.Fault {
	var faults []document.Fault
	fault := func(path, problem string, args ...any) {
		faults = append(faults, document.Fault{File: s.Source.File, Line: s.Source.Line, Path: path, Problem: fmt.Sprintf(problem, args...)})
	}
	if !isServiceName(s.Name) {
		fault("name", "%q cannot be the name of a service; %s", s.Name, meshpolicy.NameRule)
	}
	for i, a := range s.Aliases {
		if !isServiceName(a.Name) {
			fault(fmt.Sprintf("aliases[%d]", i), "%q cannot be the name of a service; %s", a.Name, meshpolicy.NameRule)
		}
	}
	if s.ExternalName != "" {
		if _, _, err := ParseAddress(s.ExternalName); err != nil {
			fault("externalName", "%v", err)
		}
	}
	first := make(map[string]int, len(s.Endpoints))
	var total uint64
	for i := range s.Endpoints {
		e, at := &s.Endpoints[i], fmt.Sprintf("endpoints[%d]", i)
		address := e.Address
		if host, port, err := ParseAddress(e.Address); err != nil {
			fault(at+".address", "%v", err)
		} else {
			address = net.JoinHostPort(host, strconv.FormatUint(uint64(port), 10))
		}
		if j, twice := first[address]; twice {
			fault(at+".address", "the address is that of endpoints[%d]", j)
		}
		first[address] = i
		for _, additional := range e.AdditionalAddresses {
			if !(&Endpoint{Address: additional}).isIP() {
				fault(at+".additionalAddresses", "%q is not ip:port", additional)
			}
		}
		total += uint64(max(e.Weight, 1))
		if hasBlank(e.Hostname) {
			fault(at+".hostname", "%q has a blank or control character in it", e.Hostname)
		}
		if _, known := corepb.HealthStatus_name[int32(e.Health)]; !known {
			fault(at+".health", "%d is not a state of health", e.Health)
		}
	}
	for _, weight := range s.LocalityWeights {
		total += uint64(weight)
	}
	if total > math.MaxUint32 {
		fault("endpoints", "the weights add up to %d, more than %d", total, uint32(math.MaxUint32))
	}
	if extra := s.beyondSettings(); extra != "" {
		fault("", "the settings have %s, which is not among those that a service may have", extra)
	}
	s.TLS.check(fault)
	return faults
}
