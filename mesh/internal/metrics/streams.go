package metrics

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/stats"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/clients"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// types are those of xDS.
var types = append(xdsname.ResourceTypes(), xdsname.ConstraintsMap)

// label returns the label of a type: all that are not of xDS are "other", as clients may invent them.
func label(typeURL string) string {
	if name, ok := strings.CutPrefix(typeURL, typeurl.Prefix); ok && slices.Contains(types, name) {
		return typeurl.ShortName(name)
	}
	return "other"
}

// kindOf returns the kind of a stream, "" for one of another service.
func kindOf(method string) string {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	switch service {
	case "envoy.service.discovery.v3.AggregatedDiscoveryService":
		if strings.HasPrefix(name, "Delta") {
			return "delta"
		}
		return "sotw"
	case "envoy.service.dynamic_parameters.v3.DynamicParametersDiscoveryService":
		return "dpds"
	case "envoy.service.load_stats.v3.LoadReportingService":
		return "loads"
	}
	return ""
}

// AddClients adds the metrics of the clients that controlplane.Server.Overview has.
func (p *Plane) AddClients(overview func() []controlplane.ClientStatus) {
	p.collect(func(to reading) {
		nodes, refuse, standings := make(map[string]bool), make(map[string]float64), make(map[clients.Standing]float64)
		for _, client := range overview() {
			if len(client.Types) > 0 { // otherwise it has sent nothing yet
				nodes[client.Node.GetId()] = true
			}
			standings[clients.StandingOf(&client, time.Now())]++
			for i := range client.Types {
				if of := label(client.Types[i].TypeURL); client.Types[i].Refusing {
					refuse[of]++
				} else {
					refuse[of] += 0 // it exists
				}
			}
		}
		to.gauge(namespace+"_clients", "Distinct node ids among the streams of clients.")(float64(len(nodes)))
		to.gauge(namespace+"_late_streams", "Streams whose client has answered nothing for ten seconds, though it was sent a response.")(standings[clients.Late])
		refusing := to.gauge(namespace+"_refusing_streams", "Streams that have rejected a response of the type and accepted none since.", "type")
		for of, n := range refuse {
			refusing(n, of)
		}
	})
}

// StatsHandler watches the streams of a gRPC server (grpc.StatsHandler).
func (p *Plane) StatsHandler() stats.Handler { return handler{p} }

type handler struct{ *Plane }

type streamKey struct{}

// TagRPC implements stats.Handler.
func (h handler) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	kind := kindOf(info.FullMethodName)
	if kind == "" {
		return ctx
	}
	return context.WithValue(ctx, streamKey{}, kind)
}

// HandleRPC implements stats.Handler.
func (h handler) HandleRPC(ctx context.Context, event stats.RPCStats) {
	kind, ok := ctx.Value(streamKey{}).(string)
	if !ok {
		return
	}
	switch event := event.(type) {
	case *stats.Begin:
		h.streams.WithLabelValues(kind).Inc()
	case *stats.OutPayload:
		h.sent(event)
	case *stats.End:
		h.streams.WithLabelValues(kind).Dec()
	}
}

// TagConn and HandleConn implement stats.Handler.
func (handler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (handler) HandleConn(context.Context, stats.ConnStats)                       {}

func (h handler) sent(event *stats.OutPayload) {
	r, ok := event.Payload.(interface {
		GetTypeUrl() string
		GetResourceErrors() []*discoverypb.ResourceError
	})
	if !ok {
		return
	}
	of := label(r.GetTypeUrl())
	h.pushes.WithLabelValues(of).Inc()
	h.bytes.WithLabelValues(of).Add(float64(event.Length))
	if n := len(r.GetResourceErrors()); n > 0 {
		h.resourceErrors.WithLabelValues(of).Add(float64(n))
	}
}
