package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient"
)

// InProcess explains RPCs of an xDS channel of this process, by what its xDS client holds and by the
// state of its connections, without sending one. RPCs that would fail are explained, too. It is an
// error if no channel has the target, or if the request is malformed. ctx bounds the wait for the
// balancer: if it does not answer before ctx ends, the explanation is without the state of connections.
// InProcess is safe for concurrent use.
func InProcess(ctx context.Context, request Request) (*Explanation, error) {
	request, err := request.normal()
	if err != nil {
		return nil, err
	}
	e, config, err := ofChannel(ctx, request, Explain)
	if err != nil || config == nil {
		return e, err
	}
	if e.Pending = pending(config); e.Pending != "" {
		e.Outcome, e.Code = e.Pending+"; then: "+e.Outcome, ""
	}
	if why := config.Error; why != "" && len(e.Routes) == 0 {
		e.Outcome, e.Code = "RPCs fail with UNAVAILABLE: "+why, unavailable
	}
	return e, nil
}

// SurveyProcess surveys the channel of this process with a target; see [InProcess] about ctx. While the channel has no
// resources, there is only an Outcome.
func SurveyProcess(ctx context.Context, target string) (*Explanation, error) {
	e, _, err := ofChannel(ctx, Request{Target: target}, SurveySource)
	return e, err
}

// ofChannel explains by what the xDS client of a request's channel holds, and returns the channel's configuration, too. If no resources
// decide about RPCs, the explanation says only that, and the configuration is nil. RPCs are counted from now on.
func ofChannel(ctx context.Context, request Request, by func(*Source, Request) (*Explanation, error)) (*Explanation, *inspect.Config, error) {
	channel, notes, err := channelOf(&request)
	if err != nil {
		return nil, nil, err
	}
	without := func(outcome string) (*Explanation, *inspect.Config, error) {
		return &Explanation{Request: request, Client: Client{Source: thisProcess, Channel: string(channel.State)}, Outcome: outcome}, nil, nil
	}
	switch {
	case channel.Mode == string(channels.DNS):
		return without("DNS resolves the channel, and no route decides: " + channel.Reason)
	case channel.Config == nil:
		return without("RPCs wait for the channel's configuration: " + channel.Why)
	}
	client := clientOf(channel.Config)
	if client == nil {
		return without("RPCs wait for the channel's configuration: its xDS client has just ended")
	}
	dump := client.Dump()
	s := &Source{
		Client: ClientOf(thisProcess, dump.Node), UsesXDS: &channel.Config.UsesXDS, Notes: notes,
		State: livestate.Take(ctx, &livestate.Source{Channels: []inspect.Channel{*channel}, Clients: []*xdsclient.Dump{dump}}),
	}
	for i := range dump.Resources {
		if r := &dump.Resources[i]; types[r.TypeURL] != nil {
			s.Resources = append(s.Resources, resourceOf(r))
		}
	}
	request.Listener = channel.Config.Listener
	if !slices.ContainsFunc(s.Resources, func(r *Resource) bool {
		return r.TypeURL == typeurl.Listener && xdsname.Canonical(r.Name) == xdsname.Canonical(request.Listener)
	}) {
		// The channel was described before the client, and has become idle or active since.
		return without(fmt.Sprintf("RPCs wait for the channel's configuration: its xDS client does not watch Listener %q at the moment", request.Listener))
	}
	request.Authority = cmp.Or(request.Authority, channel.Config.Authority)
	request.Secure = request.Secure || channel.Config.Secure
	e, err := by(s, request)
	return e, channel.Config, err
}

// thisProcess is the Client.Source of the process itself.
const thisProcess = "this process"

// channelOf returns the channel of a request. Of several it prefers one that is configured.
func channelOf(r *Request) (*inspect.Channel, []string, error) {
	if _, _, err := ParseTarget(r.Target); err != nil {
		return nil, nil, err
	}
	all := channels.Inspect()
	var found []inspect.Channel
	var targets []string
	for _, c := range all {
		if SameTarget(c.Target, r.Target) && (r.Channel == 0 || r.Channel == c.Number) {
			found = append(found, c)
		}
		if !slices.Contains(targets, c.Target) {
			targets = append(targets, c.Target)
		}
	}
	if len(found) == 0 {
		what := fmt.Sprintf("the target %q", r.Target)
		if r.Channel != 0 {
			what += fmt.Sprintf(" and the number %d", r.Channel)
		}
		return nil, nil, fmt.Errorf("no xDS channel of the process has %s; it has %s", what, cmp.Or(faults.Few(targets, maxListed, ", "), "none"))
	}
	best := found[max(0, slices.IndexFunc(found, func(c inspect.Channel) bool { return c.Config != nil }))]
	r.Target = best.Target
	if len(found) == 1 {
		return &best, nil, nil
	}
	return &best, []string{fmt.Sprintf("%d channels have the target; this is channel %d", len(found), best.Number)}, nil
}

// clientOf returns the xDS client of a configured channel, or nil.
func clientOf(c *inspect.Config) *xdsclient.XDSClient {
	for _, client := range xdsclient.Clients() {
		if client.Bootstrap().Fingerprint() == c.Client {
			return client
		}
	}
	return nil
}

// pending says until when RPCs take older routes than those of the newest resources, if they do.
func pending(c *inspect.Config) string {
	awaited := "cluster " + quotedList(c.WaitsFor)
	switch {
	case c.NextRoutes != "":
		awaited = fmt.Sprintf("RouteConfiguration %q", c.NextRoutes)
	case c.Waits == 0:
		return ""
	case c.Waits > len(c.WaitsFor):
		awaited = fmt.Sprintf("%d clusters, such as %s", c.Waits, quotedList(c.WaitsFor))
	}
	return "RPCs take the routes of before until there is an answer for " + awaited
}

// resourceOf returns a resource as a client of the process has it.
func resourceOf(r *xdsclient.ResourceDump) *Resource {
	held := &Resource{TypeURL: r.TypeURL, Raw: r.Any(), value: r.Value(), ResourceStatus: ResourceStatus{
		Name: r.Name, State: string(r.State), Server: r.Server, Version: r.Version, Updated: r.LastUpdated, Variant: livestate.Variant(r),
	}}
	if r.FromDisk {
		held.FromDisk = fmt.Sprintf("%d minutes old", max(0, time.Since(r.LastUpdated)/time.Minute))
	}
	if f := r.Failure; f != nil {
		held.Error, held.ErrorVersion, held.ErrorTime = f.Err.Error(), f.Version, f.Time
	}
	return held
}

// StatusOf describes a resource of a client of the process, of any type.
func StatusOf(r *xdsclient.ResourceDump) *ResourceStatus {
	s := resourceOf(r).status()
	s.Ignored = slices.Clone(r.Ignored())
	return s
}

// ClientOf describes the client that has a node.
func ClientOf(source string, node *corepb.Node) Client {
	return Client{Source: source, NodeID: node.GetId(), Name: node.GetUserAgentName(), Version: node.GetUserAgentVersion()}
}
