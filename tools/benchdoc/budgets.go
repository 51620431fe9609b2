package main

import "fmt"

// The peers, as the benchmarks name them.
const (
	nobody    = "nobody"
	plain     = "plain"
	grpcGo    = "grpc-go-xds"
	sotw      = "dynxds"
	delta     = "dynxds-delta"
	otherPeer = grpcGo

	// The servers of BenchmarkRelay.
	goControlPlane = "go-control-plane"
	throughRelay   = "relay"
)

// budget is a limit that dynxds has set itself.
type budget struct {
	what  string
	limit float64
	// show formats a value.
	show func(float64) string
	// value is what was measured of dynxds, peer of gRPC-Go's xds; false if it
	// was not.
	value, peer func(r *results) (float64, bool)
}

type measure = func(r *results) (float64, bool)

func of(row, peer, unit string) measure {
	return func(r *results) (float64, bool) { return r.median(row, peer, unit) }
}

func none(*results) (float64, bool) { return 0, false }

func combine(a, b measure, f func(a, b float64) float64) measure {
	return func(r *results) (float64, bool) {
		x, okX := a(r)
		y, okY := b(r)
		return f(x, y), okX && okY
	}
}

func minus(a, b float64) float64 { return a - b }
func by(a, b float64) float64    { return a / b }

func plainNumber(v float64) string { return format("", v) }

func in(unit string) func(float64) string { return func(v float64) string { return format(unit, v) } }

// fleetRow is the row of a benchmark with many clusters.
func fleetRow(clusters int, rest string) string {
	endpoints := 10
	if clusters == 10_000 {
		endpoints = 1
	}
	return fmt.Sprintf("Fleet/clusters=%d/endpoints=%d/%s", clusters, endpoints, rest)
}

func budgets() []budget {
	var all []budget
	for _, n := range []int{1, 10_000} {
		row := fmt.Sprintf("Unary/routes=%d/sequential", n)
		over := func(peer string) measure {
			return combine(of(row, peer, "allocs/op"), of(row, plain, "allocs/op"), minus)
		}
		all = append(all, budget{fmt.Sprintf("allocations per unary RPC over those of a plain channel, %s", count(n, "route")), 5, plainNumber, over(sotw), over(grpcGo)})
	}
	slowdown := func(peer string) measure {
		return combine(of("Unary/routes=10000/sequential", peer, "ns/op"), of("Unary/routes=1/sequential", peer, "ns/op"), by)
	}
	all = append(all, budget{"time of a unary RPC at 10,000 routes ÷ at 1 route", 1.05, plainNumber, slowdown(sotw), slowdown(grpcGo)})
	further := func(unit string) measure {
		return combine(of("Filters/5", "", unit), of("Filters/1", "", unit), func(five, one float64) float64 { return (five - one) / 4 })
	}
	all = append(all,
		budget{"routing a unary RPC by its path, 10,000 routes", 150, in("ns"), of("Select/exact/10000", "", "ns/op"), none},
		budget{"allocations of that", 1, plainNumber, of("Select/exact/10000", "", "allocs/op"), none},
		budget{"a further HTTP filter", 150, in("ns"), further("ns/op"), none},
		budget{"allocations of that", 2, plainNumber, further("allocs/op"), none},
		budget{"matching 5 dynamic parameters", 200, in("ns"), of("Match", "", "ns/op"), none},
		budget{"allocations of that", 0, plainNumber, of("Match", "", "allocs/op"), none},
	)
	for _, n := range []int{1_000, 10_000} {
		again := fleetRow(n, "change=none/cost")
		all = append(all, budget{fmt.Sprintf("resources decoded of a push of %s that did not change", count(n, "cluster")), 0, plainNumber, of(again, sotw, "decoded/op"), none})
		if n == 1_000 {
			all = append(all, budget{"CPU time of that push", 2, in("ms"), of(again, sotw, "cpu-ms/op"), of(again, grpcGo, "cpu-ms/op")})
		}
	}
	one := fleetRow(10_000, "change=cluster/cost")
	all = append(all, budget{"bytes received for 1 change among 10,000 clusters, delta ÷ SotW", 0.001, plainNumber,
		combine(of(one, delta, "wire-B/op"), of(one, sotw, "wire-B/op"), by), none})
	for _, n := range []int{1_000, 10_000} {
		for _, change := range []string{"endpoints", "cluster", "route"} {
			for _, variant := range []string{sotw, delta} {
				name := fmt.Sprintf("1 changed %s among %s, %s", changeNames[change], count(n, "cluster"), variantNames[variant])
				cost, delay := fleetRow(n, "change="+change+"/cost"), fleetRow(n, "change="+change+"/delay")
				all = append(all,
					budget{"CPU time of " + name, 5, in("ms"), of(cost, variant, "cpu-ms/op"), of(cost, grpcGo, "cpu-ms/op")},
					budget{"memory allocated by " + name, 200e3, in("B"), of(cost, variant, "B/op"), of(cost, grpcGo, "B/op")},
					budget{"time until an RPC sees " + name, 20, in("ms"), of(delay, variant, "ms-until-an-RPC-shows-it"), of(delay, grpcGo, "ms-until-an-RPC-shows-it")},
				)
			}
		}
	}
	for _, when := range []struct{ response, text string }{
		{"NACKed", "an invalid response when it is NACKed"},
		{"ACKed", "a valid response when it is ACKed"},
		{"unasked", "a valid response without end"},
	} {
		row := "Repeats/response=" + when.response
		for _, variant := range []string{sotw, delta} {
			all = append(all, budget{fmt.Sprintf("CPU time in a second in which the control plane repeats %s, %s", when.text, variantNames[variant]), 10, in("ms"),
				of(row, variant, "cpu-ms/second"), of(row, grpcGo, "cpu-ms/second")})
		}
	}
	for _, m := range []struct {
		kind string
		n    int
		noun string
	}{
		{"aggregate", 500, "cluster under an aggregate one"},
		{"static", 10_000, "endpoint of a STATIC cluster with ring hash"},
		{"random", 1_000, "endpoint of a STATIC cluster with random"},
		{"dns", 1_000, "name of a STRICT_DNS cluster"},
	} {
		row := func(n int) string { return fmt.Sprintf("Members/%s/members=%d/cost", m.kind, n) }
		growth := func(peer string) measure {
			return combine(of(row(10*m.n), peer, "cpu-us/member"), of(row(m.n), peer, "cpu-us/member"), by)
		}
		all = append(all, budget{fmt.Sprintf("CPU time of each %s, at %s ÷ at %s", m.noun, group(10*m.n), group(m.n)), 1.5, plainNumber, growth(sotw), growth(grpcGo)})
	}
	all = append(all, budget{"goroutines while 10,000 names are looked up", 1000, plainNumber, of("Members/dns/members=10000/cost", sotw, "most-goroutines"), none})
	hold := fleetRow(1_000, "hold")
	many := fleetRow(10_000, "hold")
	idle := func(peer string) measure {
		return combine(of(hold, peer, "connections"), func(*results) (float64, bool) { return 10, true }, minus)
	}
	return append(all,
		budget{"connections to the 999 clusters of 10 endpoints that no RPC uses", 0, plainNumber, idle(sotw), idle(grpcGo)},
		budget{"heap of a further cluster of 1 endpoint, with its route, that no RPC uses", 4096, in("B"), of(many, sotw, "heap-B/cluster"), of(many, grpcGo, "heap-B/cluster")},
		budget{"goroutines of a further cluster of 10 endpoints", 0.1, plainNumber, of(hold, sotw, "goroutines/cluster"), of(hold, grpcGo, "goroutines/cluster")},
	)
}

// reasons say why a limit is not kept, where that is known, by what is limited.
var reasons = map[string]string{
	"memory allocated by 1 changed route among 10,000 clusters, SotW":  ownBytes,
	"memory allocated by 1 changed route among 10,000 clusters, delta": ownBytes,
}

const ownBytes = "a client keeps the bytes of a resource, and this RouteConfiguration alone has more"

var changeNames = map[string]string{"endpoints": "endpoint set", "cluster": "cluster", "route": "route"}

var variantNames = map[string]string{sotw: "SotW", delta: "delta"}

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return group(n) + " " + noun
}
