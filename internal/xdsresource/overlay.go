package xdsresource

import (
	"strings"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/overlay"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// A setting that the bootstrap overrides is decoded twice: as it was received, so that the server
// gets the ACK or NACK that it would get anyway, and as it is in use. The second has no say in
// whether the resource is valid.

// Change is a setting that is not as received.
type Change struct {
	// Setting is its key in the bootstrap's overrides.
	Setting string
	// By has the indexes of the overrides that change it.
	By []int
	// Received and Used are the setting before and after. They are nil messages where the setting
	// is not set.
	Received, Used proto.Message
}

// Changes are the settings of a resource, or of a part of it, that are not as received.
type Changes []Change

// overlaying is what the bootstrap changes in one resource.
type overlaying struct {
	overrides []*overlay.Override
	// refused has the faults of overrides. It is set only to check them.
	refused *faults.Faults
}

// findOverrides sets the overrides for a resource.
func (o *overlaying) findOverrides(options xdsclient.DecodeOptions, typeURL, name string) {
	all := options.Overrides
	if all == nil && options.Bootstrap != nil {
		all = options.Bootstrap.Overrides
	}
	o.overrides = all.For(typeURL, name)
}

// overlaid returns what a setting, which was received as a message and has the value, is with the
// overrides of the resource, and adds to changes if that is something else. An override that
// would make the setting invalid is left out and reported as ignored.
func overlaid[M proto.Message, T any](v *validator, changes *Changes, setting string, received M, value T, decode func(*faults.Path, M) T) T {
	if len(v.overlay.overrides) == 0 || v.failed() {
		return value // There is nothing to change, or the resource is of no use.
	}
	used, by := received, []int(nil)
	for _, o := range v.overlay.overrides {
		patch := o.Patch(setting)
		if patch == nil {
			continue
		}
		changed := patch.Apply(used).(M)
		if proto.Equal(changed, used) {
			continue
		}
		received := v.report
		v.report = report{}
		result := decode(faults.Field(setting), changed)
		trial := v.report
		v.report = received
		v.refuse(o, setting, changed, &trial)
		if !trial.failed() {
			used, value, by = changed, result, append(by, o.Index)
		}
	}
	if len(by) > 0 {
		*changes = append(*changes, Change{setting, by, received, used})
	}
	return value
}

// refuse reports what is wrong with an override, given what was found when its result was decoded.
func (v *validator) refuse(o *overlay.Override, setting string, changed proto.Message, trial *report) {
	for _, f := range trial.faults.List {
		v.leaveOut(faults.Item("overrides", o.Index).Field(f.Path), xdsclient.SeverityWarning, "the setting stays as received: %s", f.Problem)
	}
	if v.overlay.refused == nil {
		return
	}
	// The value of a field that only the resource has is not the override's fault.
	add := func(path, problem string) {
		if o.Patch(setting).Sets(strings.TrimPrefix(strings.TrimPrefix(path, setting), ".")) {
			v.overlay.refused.Add(faults.Fault{Path: path, Problem: problem})
		}
	}
	for _, f := range trial.faults.List {
		add(f.Path, f.Problem)
	}
	walk := fieldWalk{ignored: trial.ignored}
	walk.message(faults.Field(setting), changed.ProtoReflect())
	for _, i := range walk.ignored.list() {
		add(i.Path, i.Reason)
	}
}

// CheckOverrides returns what is wrong with the overrides of a bootstrap, whatever they are applied to: values that
// no resource may have, and fields that the client does not act on. The error is a *bootstrap.Faults.
func CheckOverrides(config *bootstrap.Config) error {
	found := &bootstrap.Faults{Source: "xDS bootstrap " + config.Source}
	for _, o := range config.Overrides.All() {
		for _, f := range checkOverride(o).List {
			f.Path = faults.Item("overrides", o.Index).Field(f.Path).String()
			found.Add(f)
		}
	}
	return found.Err()
}

func checkOverride(o *overlay.Override) *faults.Faults {
	v := &validator{overlay: overlaying{[]*overlay.Override{o}, &faults.Faults{}}}
	ads := &corepb.ConfigSource{ConfigSourceSpecifier: &corepb.ConfigSource_Ads{Ads: &corepb.AggregatedConfigSource{}}}
	clusterOf(v, &clusterpb.Cluster{
		Name:                 "any",
		ClusterDiscoveryType: &clusterpb.Cluster_Type{Type: clusterpb.Cluster_EDS},
		EdsClusterConfig:     &clusterpb.Cluster_EdsClusterConfig{EdsConfig: ads},
	})
	routes := &routepb.RouteConfiguration{Name: "any", VirtualHosts: []*routepb.VirtualHost{{
		Domains: []string{"*"},
		Routes: []*routepb.Route{{
			Match:  &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_Prefix{}},
			Action: &routepb.Route_Route{Route: &routepb.RouteAction{ClusterSpecifier: &routepb.RouteAction_Cluster{Cluster: "any"}}},
		}},
	}}}
	routeConfigurationAt(v, nil, routes, 1, hostsOf(routes))
	return v.overlay.refused
}

func (d *routeDecoder) overlaidRetry(at *faults.Path, received *routepb.RetryPolicy, changes *Changes) *RetryPolicy {
	decode := func(at *faults.Path, pb *routepb.RetryPolicy) *RetryPolicy {
		// The expressions of an override do not count for the limit on those of the resource.
		defer func(cost int) { d.match.cost = cost }(d.match.cost)
		return d.retryPolicy(at, pb)
	}
	return overlaid(d.validator, changes, overlay.RetryPolicy, received, d.retryPolicy(at.Field("retry_policy"), received), decode)
}

// overlaidHedge reports whether the per-try timeouts of a route hedge. received is the policy that the
// route has, or else its virtual host.
func overlaidHedge(v *validator, received *routepb.HedgePolicy, changes *Changes) bool {
	return overlaid(v, changes, overlay.HedgePolicy, received, received.GetHedgeOnPerTryTimeout(), func(_ *faults.Path, pb *routepb.HedgePolicy) bool {
		return pb.GetHedgeOnPerTryTimeout()
	})
}

// overlaidTimeout returns the bound that a route sets, nil if it sets none.
func (d *routeDecoder) overlaidTimeout(at *faults.Path, pb *routepb.RouteAction_MaxStreamDuration, changes *Changes) *time.Duration {
	limit := d.maxStreamDuration(at.Field("max_stream_duration"), pb)
	if len(d.overlay.overrides) == 0 {
		return limit
	}
	var received *durationpb.Duration
	if limit != nil {
		received = durationpb.New(*limit)
	}
	return overlaid(d.validator, changes, overlay.Timeout, received, limit, func(at *faults.Path, pb *durationpb.Duration) *time.Duration {
		if pb == nil {
			return nil
		}
		limit := d.duration(at, pb)
		return &limit
	})
}
