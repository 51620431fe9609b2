// Package metrics has the metrics of "dynxds serve" and "dynxds relay" for Prometheus. The control plane,
// the relay and the source of documents report events to it, and a stats handler counts the messages of the
// gRPC server. Package serve serves its Handler.
//
// Each label has a few values, whatever clients send.
package metrics

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dynxds/dynxds/mesh/controlplane"
)

const namespace = "dynxds_controlplane"

// Plane are the metrics of one control plane. It is safe for concurrent use.
type Plane struct {
	registry *prometheus.Registry

	streams                    *prometheus.GaugeVec
	pushes, bytes, acks, nacks *prometheus.CounterVec
	resourceErrors, refused    *prometheus.CounterVec
	handshakes                 prometheus.Counter
	build, changeToACK         prometheus.Histogram
	// lastChange is how long clients took for the last change that one of them has ACKed.
	lastChange struct {
		mu   sync.Mutex
		at   time.Time
		took time.Duration
	}
	// unserved is when documents were seen that are not served yet, nil if there are none.
	unserved atomic.Pointer[time.Time]
}

// New returns metrics that are not served yet.
func New() *Plane {
	byType := []string{"type"}
	p := &Plane{
		registry: prometheus.NewRegistry(),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "streams", Help: "Streams of clients: sotw and delta (ADS), dpds, and loads (LRS).",
		}, []string{"kind"}),
		pushes:         counters("pushes_total", "Responses sent to clients.", byType),
		bytes:          counters("push_bytes_total", "Size of the responses sent to clients, before compression.", byType),
		acks:           counters("acks_total", "Responses that clients have accepted.", byType),
		nacks:          counters("nacks_total", "Responses that clients have rejected.", byType),
		resourceErrors: counters("resource_errors_total", "Errors sent to clients in place of resources (xRFC TP3).", byType),
		refused:        counters("refused_total", "What clients were refused because a limit is reached.", []string{"limit"}),
		handshakes:     counters("failed_handshakes_total", "TLS handshakes of clients that have failed.", nil).WithLabelValues(),
		build:          seconds("build_seconds", "Time from reading the documents to their resources being stored, of updates that were published."),
		changeToACK:    seconds("change_to_ack_seconds", "Time from a change of the resources to the ACK of each response that it caused."),
	}
	p.registry.MustRegister(
		p.streams, p.pushes, p.bytes, p.acks, p.nacks, p.resourceErrors, p.refused, p.handshakes, p.changeToACK,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	p.collect(certificates)
	p.collect(func(to reading) {
		p.lastChange.mu.Lock()
		defer p.lastChange.mu.Unlock()
		to.gauge(namespace+"_last_change_ack_seconds", "Longest time from the last change of the resources to an ACK of it so far.")(p.lastChange.took.Seconds())
	})
	return p
}

func counters(name, help string, labels []string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

// seconds is a histogram of durations.
func seconds(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: []float64{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60},
	})
}

// Handler serves the metrics, in the formats of Prometheus.
func (p *Plane) Handler() http.Handler {
	return promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, ErrorHandling: promhttp.ContinueOnError})
}

// Gatherer returns the metrics, for tests.
func (p *Plane) Gatherer() prometheus.Gatherer { return p.registry }

// ACKed is a controlplane.Options.OnACK.
func (p *Plane) ACKed(typeURL string, changed time.Time) {
	p.acks.WithLabelValues(label(typeURL)).Inc()
	if changed.IsZero() {
		return
	}
	took := time.Since(changed)
	p.changeToACK.Observe(took.Seconds())
	l := &p.lastChange
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case changed.After(l.at):
		l.at, l.took = changed, took
	case changed.Equal(l.at):
		l.took = max(l.took, took)
	}
}

// NACKed is a controlplane.Options.OnNACK.
func (p *Plane) NACKed(r controlplane.Rejection) { p.nacks.WithLabelValues(label(r.TypeURL)).Inc() }

// HandshakeFailed counts a TLS handshake that has failed.
func (p *Plane) HandshakeFailed() { p.handshakes.Inc() }

// Limited is a controlplane.Options.OnRefused.
func (p *Plane) Limited(limit string) { p.refused.WithLabelValues(limit).Inc() }
