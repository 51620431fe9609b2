package site

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

func absenceOf(t *testing.T, authority string, services ...string) *absence {
	t.Helper()
	text := ""
	for _, name := range services {
		text += "kind: Service\nname: " + name + "\n---\n"
	}
	content, err := new(folder.Parser).Parse(map[string]string{"a.yaml": text})
	xdstest.NoError(t, err)
	loaded, err := loadContent(content, publish.Options{Authority: authority})
	xdstest.NoError(t, err)
	a := newAbsence()
	a.published.Store(&dialable{content, loaded.publisher.Mesh()})
	return a
}

func all(string) bool { return true }

// A client that dials a service that does not exist is told which one it may have meant, of those that it may have.
func TestAbsence(t *testing.T) {
	t.Parallel()
	const xdstp = "xdstp://mesh/envoy.config.listener.v3.Listener/"
	only := func(names ...string) func(string) bool {
		return func(name string) bool { return strings.Contains(" "+strings.Join(names, " ")+" ", " "+name+" ") }
	}
	a := absenceOf(t, "mesh", "greeter", "orders", "orders.shop", "greeting", "x")
	for _, test := range []struct {
		name    string
		allowed func(string) bool
		want    string
	}{
		{"greet", all, `there is no service "greet"; did you mean "greeter"?`},
		{"greet", only("greeting"), `there is no service "greet"; did you mean "greeting"?`},
		{"greeterr", all, `there is no service "greeterr"; did you mean "greeter"?`},
		{"greetre", all, `there is no service "greetre"; did you mean "greeter"?`},
		{"Orders", all, `there is no service "Orders"; did you mean "orders"?`},
		{"orders:443", all, `there is no service "orders:443"; did you mean "orders"?`},
		{"orders.shop.svc.cluster.local", all, `there is no service "orders.shop.svc.cluster.local"; did you mean "orders.shop"?`},
		{"orders.shop.svc.cluster.local", only("orders"), `there is no service "orders.shop.svc.cluster.local"; did you mean "orders"?`},
		{"unlike", all, `there is no service "unlike"`},
		{"ab", all, `there is no service "ab"`},
		{"greet", only(), `there is no service "greet"`},
		{xdstp + "greet", only(xdstp + "greeter"), `there is no service "greet"; did you mean "greeter"?`},
		{xdstp + "greet", only("greeter"), `there is no service "greet"`},
		{strings.Repeat("greeter", 100_000), all, ""},
	} {
		got := a.text(meshroute.ListenerType, test.name, test.allowed)
		if len(test.name) > 1000 {
			if len(got) > 2000 || strings.Contains(got, "did you mean") {
				t.Errorf("a long name has the text %.100q of %d bytes, want a short one", got, len(got))
			}
		} else if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	if got := a.text(meshroute.ClusterType, "greet", all); got != "" {
		t.Errorf("a Cluster has the text %q, want that of the server", got)
	}
}

// Clients that ask for many names are told less, not sooner than the time allows: a fiftieth of it goes into comparisons.
func TestAbsenceIsBounded(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 5000 {
		names = append(names, fmt.Sprintf("service-%d", i))
	}
	a := absenceOf(t, "", names...)
	synctest.Test(t, func(t *testing.T) {
		said := func() (n int) {
			for range 1000 {
				if strings.Contains(a.text(meshroute.ListenerType, "servicf-77", all), `; did you mean "service-77"?`) {
					n++
				}
			}
			return n
		}
		if n := said(); n < 4 || n > 6 {
			t.Errorf("%d of 1000 names were compared with 5000 at once, want 5", n)
		}
		time.Sleep(time.Minute)
		if n := said(); n < 4 || n > 6 {
			t.Errorf("%d were after a minute, want 5 again", n)
		}
	})
}
