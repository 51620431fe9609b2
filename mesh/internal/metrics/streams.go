package metrics

import (
	"context"
	"hash/maphash"
	"strings"
	"sync"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/stats"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// labels are those of the types of xDS, by type URL. All other types are "other", as clients may invent
// them.
var labels = func() map[string]string {
	of := make(map[string]string)
	for _, name := range append(xdsname.ResourceTypes(), xdsname.ConstraintsMap) {
		of[typeurl.Prefix+name] = typeurl.ShortName(name)
	}
	return of
}()

func label(typeURL string) string {
	if l := labels[typeURL]; l != "" {
		return l
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

// What clients send is kept as hashes, as it may be long.
var seed = maphash.MakeSeed()

// nodes counts the streams of each node, by the hash of its id.
type nodes struct {
	mu      sync.Mutex
	streams map[uint64]int
}

func (n *nodes) add(id uint64, streams int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.streams[id] += streams; n.streams[id] == 0 {
		delete(n.streams, id)
	}
}

func (n *nodes) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.streams)
}

// stream is what is known of one stream of a client.
type stream struct {
	kind string

	mu sync.Mutex
	// ended is set at the end; the handler's reader may still receive a last request.
	ended bool
	// known says that node is set, the hash of the id.
	known bool
	node  uint64
	// refused has the hash of the nonce of the response that the client refused last, by the
	// label of its type, while it has accepted none since.
	refused map[string]uint64
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
	return context.WithValue(ctx, streamKey{}, &stream{kind: kind})
}

// HandleRPC implements stats.Handler.
func (h handler) HandleRPC(ctx context.Context, event stats.RPCStats) {
	s, ok := ctx.Value(streamKey{}).(*stream)
	if !ok {
		return
	}
	switch event := event.(type) {
	case *stats.Begin:
		h.streams.WithLabelValues(s.kind).Inc()
	case *stats.InPayload:
		h.received(s, event.Payload)
	case *stats.OutPayload:
		h.sent(event)
	case *stats.End:
		h.streams.WithLabelValues(s.kind).Dec()
		h.ended(s)
	}
}

// TagConn and HandleConn implement stats.Handler.
func (handler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (handler) HandleConn(context.Context, stats.ConnStats)                       {}

// request is a discovery request of either protocol.
type request interface {
	GetNode() *corepb.Node
	GetTypeUrl() string
	GetResponseNonce() string
	GetErrorDetail() *statuspb.Status
}

func (h handler) received(s *stream, payload any) {
	r, ok := payload.(request)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	if !s.known {
		s.known, s.node = true, maphash.String(seed, r.GetNode().GetId())
		h.nodes.add(s.node, 1)
	}
	of, nonce := label(r.GetTypeUrl()), maphash.String(seed, r.GetResponseNonce())
	last, refuses := s.refused[of]
	switch {
	case r.GetResponseNonce() == "" || refuses && nonce == last: // no answer, or another subscription after the NACK
	case r.GetErrorDetail() != nil:
		if s.refused == nil {
			s.refused = make(map[string]uint64)
		}
		s.refused[of] = nonce
		if !refuses {
			h.refusing.WithLabelValues(of).Inc()
		}
	case refuses:
		delete(s.refused, of)
		h.refusing.WithLabelValues(of).Dec()
	}
}

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

// ended forgets a stream.
func (h handler) ended(s *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.known {
		h.nodes.add(s.node, -1)
	}
	for of := range s.refused {
		h.refusing.WithLabelValues(of).Dec()
	}
}
