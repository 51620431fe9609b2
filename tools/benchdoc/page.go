package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// section is a part of the page: the benchmarks of a name.
type section struct{ prefix, title, text string }

var sections = []section{
	{"Unary/", "Unary RPCs", `One unary RPC over loopback, client and server in one process, one at a time and on all cores at
once. The route that matches is the last one of the table. Compare the difference to the plain channel.`},
	{"Stream/", "Streams", "A bidirectional stream with one message each way, from its beginning to its end."},
	{"Message/", "Messages", "One message each way on an open stream."},
	{"Start", "Start", "From dialling to the end of the first RPC, with a new xDS client each time."},
	{"PickThroughTree/", "Picks", `One pick of one of the endpoints, which are in two localities, through the whole tree of policies, with and without
load reports (LRS), and the end of the RPC, without the RPC itself.`},
	{"EndpointUpdate/", "Updates of endpoints", `From an update of the control plane that replaces one of many connected endpoints, until the client dials the new
endpoint. Time and CPU time are those of control plane and client together; *nobody* is a client that only reads the
responses, which is the part to subtract.`},
	{"RetryPolicy/", "Retries", `A whole RPC of dynxds: without and with a retry policy on its route, and one that is retried twice, after 1 ms and
after 2. A stream has ten messages each way.`},
	{"Channels", "1,000 channels to one target", "In one process, each with one RPC; all at once."},
	{"Repeats/", "A control plane that repeats itself", `A client process of its own, with one channel, whose control plane sends the same Cluster again: an invalid one when it
is NACKed, as go-control-plane's server does; a valid one when it is ACKed; or a valid one endlessly, as fast as the client reads.
CPU time is that of the client in one second.`},
	{"Fleet/", "Many clusters", `A client process of its own; its CPU time, allocations and heap are those of that process, the bytes those
that the control plane sent. One of the clusters has RPCs; "hold" is the memory of the client once it is idle, for each further cluster. A change
concerns that cluster: its endpoints (one more, one less), its Cluster (a limit of a circuit breaker), or its route, one
of as many in one RouteConfiguration; "none" sends all Clusters again, unchanged, with another version. To measure the delay, each of the three
sends RPCs to another backend. The delay is the time from the change in the control plane to
the end of the first RPC that follows it, with RPCs 0.2 ms apart.`},
	{"Members/", "One big cluster", `The cost of each member for a client process of its own, from the dial until it is idle: a cluster under an aggregate one,
an endpoint of a STATIC cluster with ring hash (which connects to those that RPCs are for) or random (which connects to all),
a name of a STRICT_DNS cluster. gRPC-Go's xds takes neither STATIC nor STRICT_DNS.`},
	{"Relay/", "A relay with many clients", `Clients are ADS streams over delta, 100 on each connection, in one process with the relay and its control plane, or with
go-control-plane's server over a linear cache of a mux cache. Each subscribes to 1,000 of 10,000 resources. The clients decode nothing of a resource
and keep none. Memory is heap and stacks of both ends: of a client with one subscription, of a further subscription, and of a resource at the server
with its first subscription, which for the relay includes the subscription at its control plane. A change is of one resource that all are subscribed to. CPU time is that of the process.`},
	{"Hostile/", "A hostile control plane", `A client process of its own that makes 20 RPCs a second for 15 s, each with a deadline of a second, while its control
plane does something hostile or careless. CPU time, peak memory (resident), bytes of log at warning level and the most file descriptors are those of the
process. Measured once. [Bounds](reference/bounds.md) has the limits.`},
	{"Select/", "Routing, without the RPC", `The cost of a unary RPC between the application and gRPC: the route, the cluster, and the Decision for the balancer, by
the kind and number of routes.`},
	{"Filters/", "HTTP filters, without the RPC", "The same with 0, 1 and 5 filters that do nothing; counted: one of them has a Close, on all cores."},
	{"DecodeRoutes/", "Compiling a RouteConfiguration", `From its bytes to the route table, by the kind of routes; "B kept" is the memory of the result.`},
	{"PatchRoutes/", "Compiling it again with one route changed", ""},
	{"Match", "Matching dynamic parameters (xRFC TP2)", "A resource with 5 parameters against constraints on 5 keys."},
}

// checkSections returns an error if a benchmark would be on no part of the page.
func checkSections(r *results) error {
	for _, row := range r.rows {
		if !slices.ContainsFunc(sections, func(s section) bool { return strings.HasPrefix(row, s.prefix) }) {
			return fmt.Errorf("there is no section for benchmark %q", row)
		}
	}
	return nil
}

func writePage(w io.Writer, r *results, environment [][2]string) {
	fmt.Fprint(w, `# Benchmarks

These benchmarks compare dynxds with gRPC-Go's xds package in the same run. `+"`make bench`"+` generates this page; do not edit it.

`)
	fmt.Fprint(w, "| | |\n| --- | --- |\n")
	for _, row := range environment {
		fmt.Fprintf(w, "| %s | %s |\n", row[0], row[1])
	}
	fmt.Fprint(w, `
**Method.** Every benchmark runs several times. The tables have the median, and ± half the range in percent of it where
that is more than 1%. The memory of a client, and 1,000 channels, are measured once per client process. A ratio is omitted (~) unless
a Mann-Whitney U-test finds a difference with p < 0.05. Control plane, client and backends share the cores of one machine. The columns: *plain* is
a channel with gRPC's round_robin and no xDS; *grpc-go-xds* is gRPC-Go's package; *dynxds* is SotW, *dynxds-delta* is
delta, which gRPC-Go does not implement. [interop/README.md](../interop/README.md) describes how to run them.

## Budgets

The limits that dynxds sets itself. The last column is gRPC-Go's figure for the same quantity.

| what | limit | dynxds | | gRPC-Go's xds |
| --- | --- | --- | --- | --- |
`)
	for _, b := range budgets() {
		value, ok := b.value(r)
		verdict, text := "holds", b.show(value)
		switch {
		case !ok:
			verdict, text = "not measured", ""
		case value > b.limit:
			verdict = "**exceeded**"
			if reason, ok := reasons[b.what]; ok {
				verdict += ": " + reason
			}
		}
		peer := "–"
		if v, ok := b.peer(r); ok {
			peer = b.show(v)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", b.what, b.show(b.limit), text, verdict, peer)
	}
	for _, s := range sections {
		writeSection(w, r, s)
	}
}

func writeSection(w io.Writer, r *results, s section) {
	var rows, units []string
	for _, row := range r.rows {
		if strings.HasPrefix(row, s.prefix) {
			rows = append(rows, row)
			for _, u := range r.units[row] {
				if !slices.Contains(units, u) {
					units = append(units, u)
				}
			}
		}
	}
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n## %s\n", s.title)
	if s.text != "" {
		fmt.Fprintf(w, "\n%s\n", s.text)
	}
	for _, unit := range units {
		writeTable(w, r, rows, unit)
	}
}

func writeTable(w io.Writer, r *results, rows []string, unit string) {
	peers := r.peersOf(rows, unit)
	mine := slices.DeleteFunc(slices.Clone(peers), func(p string) bool { return variantNames[p] == "" })
	beside := slices.Contains(peers, otherPeer)
	fmt.Fprintf(w, "\n| %s |", strings.ReplaceAll(unit, "-", " "))
	for _, p := range peers {
		fmt.Fprintf(w, " %s |", orIt(p))
	}
	if beside {
		for _, p := range mine {
			fmt.Fprintf(w, " %s ÷ %s |", p, otherPeer)
		}
	}
	columns := len(peers) + 1
	if beside {
		columns += len(mine)
	}
	fmt.Fprintf(w, "\n|%s\n", strings.Repeat(" --- |", columns))
	for _, row := range rows {
		cells := r.cells(row, unit, peers)
		if strings.Join(cells, "") == "" {
			continue
		}
		fmt.Fprintf(w, "| %s | %s |", strings.ReplaceAll(row, "/", " "), strings.Join(cells, " | "))
		if beside {
			for _, p := range mine {
				fmt.Fprintf(w, " %s |", r.verdict(row, unit, p))
			}
		}
		fmt.Fprintln(w)
	}
}

func orIt(peer string) string {
	if peer == "" {
		return "dynxds"
	}
	return peer
}

// peersOf are the peers that have the unit in any of the rows.
func (r *results) peersOf(rows []string, unit string) []string {
	var found []string
	for _, p := range []string{"", nobody, plain, grpcGo, goControlPlane, throughRelay, sotw, delta} {
		if slices.ContainsFunc(rows, func(row string) bool { return len(r.samples[figure{row, p, unit}]) > 0 }) {
			found = append(found, p)
		}
	}
	return found
}

func (r *results) cells(row, unit string, peers []string) []string {
	var cells []string
	for _, p := range peers {
		m, ok := r.median(row, p, unit)
		text := ""
		if ok {
			text = format(suffix(unit), m)
			if spread := r.spread(row, p, unit); spread > 1 {
				text += fmt.Sprintf(" ± %.0f%%", spread)
			}
		}
		cells = append(cells, text)
	}
	return cells
}

// verdict compares a peer to gRPC-Go's. More is worse, in every unit there is.
func (r *results) verdict(row, unit, peer string) string {
	ratio, significant, ok := r.compare(row, unit, peer, otherPeer)
	digits := significantDigits(ratio)
	switch {
	case !ok:
		return ""
	case !significant:
		return "~"
	case ratio > 1 && digits != "1":
		return fmt.Sprintf("**%s, worse**", digits)
	default:
		return digits
	}
}

// suffix is the unit of measure in the name of a figure's unit.
func suffix(unit string) string {
	for _, word := range strings.FieldsFunc(unit, func(c rune) bool { return c == '-' || c == '/' }) {
		if word == "ns" || word == "ms" || word == "B" {
			return word
		}
	}
	return ""
}

// format gives a value three digits, and bytes and times a fitting unit.
func format(unit string, v float64) string {
	switch unit {
	case "ns":
		switch {
		case v >= 1e6:
			return significantDigits(v/1e6) + " ms"
		case v >= 1e3:
			return significantDigits(v/1e3) + " µs"
		}
		return significantDigits(v) + " ns"
	case "ms":
		return significantDigits(v) + " ms"
	case "B":
		switch {
		case math.Abs(v) >= 1e6:
			return significantDigits(v/1e6) + " MB"
		case math.Abs(v) >= 1e3:
			return significantDigits(v/1e3) + " kB"
		}
		return significantDigits(v) + " B"
	}
	return significantDigits(v)
}

func significantDigits(v float64) string {
	if v == 0 {
		return "0"
	}
	if digits := int(math.Floor(math.Log10(math.Abs(v)))); digits >= 3 || v == math.Trunc(v) {
		return group(int(math.Round(v)))
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(math.Abs(v))))
	return strconv.FormatFloat(math.Round(v*scale)/scale, 'f', -1, 64)
}

// group puts commas between thousands.
func group(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
