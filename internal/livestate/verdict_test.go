package livestate

import (
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 20, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name  string
		facts Facts
		want  Health
		text  string
	}{
		{"a total outage", Facts{Channels: 1, Clusters: map[Health]int{Failing: 3}, Measured: 60, Started: 500, Ended: 500, Failed: 500, Servers: 1, Connected: 1, LastChange: now.Add(-26 * time.Second)},
			Failing, "Failing: 3 of 3 clusters · 100 % errors · control plane connected · last change 26 s ago"},
		{"an outage without RPCs", Facts{Channels: 1, Clusters: map[Health]int{Failing: 1}, Measured: 60, Servers: 1, Connected: 1},
			Failing, "Failing: the only cluster · no RPCs in the last minute · control plane connected · no change yet"},
		{"an outage that was not counted", Facts{Channels: 1, Clusters: map[Health]int{Failing: 1}, Servers: 1, Connected: 1},
			Failing, "Failing: the only cluster · errors unknown: RPCs are counted from now on · control plane connected · no change yet"},
		{"connected, and nothing counted yet", Facts{Channels: 1, Clusters: map[Health]int{Healthy: 2, Idle: 1}, Started: 3, Servers: 1, Connected: 1},
			Unknown, "Unknown: 2 of 3 clusters connected · errors unknown: RPCs are counted from now on · control plane connected · no change yet"},
		{"RPCs that hang", Facts{Channels: 1, Clusters: map[Health]int{Unknown: 1}, Measured: 60, Started: 9, Servers: 1, Connected: 1},
			Unknown, "Unknown: the only cluster is not connected · no RPC has ended in the last minute · control plane connected · no change yet"},
		{"some clusters", Facts{Channels: 2, Clusters: map[Health]int{Failing: 20, Degraded: 3, Healthy: 77, Idle: 900}, Measured: 60, Started: 1000, Ended: 1000, Failed: 21, Servers: 2, Connected: 2, LastChange: now.Add(-5 * time.Minute)},
			Failing, "Failing: 20 of 1,000 clusters · 2.1 % errors · 2 control planes connected · last change 5 min ago"},
		{"no configuration", Facts{Channels: 2, Unconfigured: 1, Clusters: map[Health]int{Healthy: 1}, Measured: 60, Servers: 1, Lost: 1},
			Failing, "Failing: 1 of 2 channels without configuration · no RPCs in the last minute · control plane unreachable · no change yet"},
		{"RPCs without a route", Facts{Channels: 1, Clusters: map[Health]int{Healthy: 1}, Measured: 60, Started: 10, Ended: 10, Failed: 5, Servers: 1, Connected: 1},
			Failing, "Failing: RPCs · 50.0 % errors · control plane connected · no change yet"},
		{"a bad endpoint", Facts{Channels: 1, Clusters: map[Health]int{Degraded: 1, Healthy: 1}, Measured: 60, Started: 10, Ended: 10, Servers: 1, Connected: 1},
			Degraded, "Degraded: 1 of 2 clusters · no errors in 10 RPCs · control plane connected · no change yet"},
		{"errors here and there", Facts{Channels: 1, Clusters: map[Health]int{Healthy: 1}, Measured: 60, Ended: 100, Failed: 1, Servers: 1, Connected: 1},
			Degraded, "Degraded: RPCs · 1.0 % errors · control plane connected · no change yet"},
		{"the control plane is lost", Facts{Channels: 1, Clusters: map[Health]int{Healthy: 1}, Measured: 60, Ended: 100, Servers: 3, Connected: 2, Lost: 1},
			Degraded, "Degraded: no news from a control plane · no errors in 100 RPCs · 1 of 3 control planes unreachable · no change yet"},
		{"behind a relay", Facts{Channels: 1, Clusters: map[Health]int{Healthy: 1}, Measured: 60, Ended: 100, Servers: 1, Connected: 1, Behind: 1, BehindSince: now.Add(-22 * time.Second)},
			Degraded, "Degraded: no news from a control plane · no errors in 100 RPCs · relay connected; its control plane unreachable for 22 s · no change yet"},
		{"a rejected version", Facts{Channels: 1, Clusters: map[Health]int{Healthy: 1}, Measured: 60, Ended: 1, Servers: 1, Connected: 1, Faults: 2},
			Degraded, "Degraded: 2 resources with an error · no errors in 1 RPC · control plane connected · no change yet"},
		{"a certificate at its end", Facts{Channels: 1, Clusters: map[Health]int{Healthy: 1}, Measured: 60, Ended: 1, Servers: 1, Connected: 1, Ending: 1},
			Degraded, "Degraded: 1 certificate at the end · no errors in 1 RPC · control plane connected · no change yet"},
		{"few errors", Facts{Channels: 1, Clusters: map[Health]int{Healthy: 2}, Measured: 60, Ended: 10_000, Failed: 3, Servers: 1, Connected: 1},
			Healthy, "Healthy: 2 clusters · under 0.1 % errors · control plane connected · no change yet"},
		{"clusters that nobody uses", Facts{Channels: 1, Clusters: map[Health]int{Healthy: 1, Idle: 999}, Measured: 20, Servers: 1, Connected: 1},
			Healthy, "Healthy: 1 of 1,000 clusters in use · no RPCs in the last 20 seconds · control plane connected · no change yet"},
		{"RPCs that routes answer", Facts{Channels: 1, Measured: 60, Ended: 5, Servers: 1, Connected: 1},
			Healthy, "Healthy: RPCs · no errors in 5 RPCs · control plane connected · no change yet"},
		{"nothing is known", Facts{}, Unknown, "Unknown: no xDS channel is in use · no control plane in use · no change yet"},
		{"a channel that waits", Facts{Channels: 1, Servers: 1}, Unknown,
			"Unknown: no configuration yet · errors unknown: RPCs are counted from now on · control plane not connected yet · no change yet"},
		{"no bootstrap", Facts{Channels: 2, ByDNS: 1, Bypassing: 1, Measured: 60, Clusters: map[Health]int{Healthy: 1}, Ended: 7, Servers: 1, Connected: 1}, Degraded,
			"Degraded: 1 of 2 channels without a bootstrap · no errors in 7 RPCs · 1 channel by DNS · control plane connected · no change yet"},
		{"DNS", Facts{Channels: 1, ByDNS: 1, Measured: 60, Servers: 1, Lost: 0, Connected: 1}, Unknown,
			"Unknown: no channel is configured by xDS · no RPCs in the last minute · 1 channel by DNS · control plane connected · no change yet"},
	} {
		tc.facts.Now = now
		v := Judge(&tc.facts)
		if v.State != tc.want || v.Text != tc.text {
			t.Errorf("%s: %s\n %s, want %s\n %s", tc.name, v.State, v.Text, tc.want, tc.text)
		}
		// No claim that there are no errors without RPCs.
		if tc.facts.Ended == 0 && (strings.Contains(v.Text, "no errors") || strings.Contains(v.Text, "0 %")) {
			t.Errorf("%s: %s", tc.name, v.Text)
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for share, want := range map[float64]string{0: "0 %", 1: "100 %", 0.0001: "under 0.1 %", 0.9999: "over 99.9 %", 0.021: "2.1 %"} {
		if got := Percent(share); got != want {
			t.Errorf("%v is %q, want %q", share, got, want)
		}
	}
	for d, want := range map[time.Duration]string{-time.Hour: "0 s", 119 * time.Second: "119 s", 2 * time.Minute: "2 min", 47 * time.Hour: "47 h", 72 * time.Hour: "3 days"} {
		if got := Ago(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
