package certfiles

import (
	"crypto/x509"
	"slices"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// What the process presents is known until its provider is closed: of each file the certificate that it has now, or had when it was
// last usable. The test is not parallel, as it asks all providers of the process, also those whose time is of a bubble.
func TestIdentities(t *testing.T) {
	ca, now := testca.New(t), time.Now()
	from := now.Add(-time.Hour).Truncate(time.Second)
	valid := func(until time.Duration) *x509.Certificate {
		return &x509.Certificate{NotBefore: from, NotAfter: from.Add(until)}
	}
	one, other, roots := testca.NewFiles(t), testca.NewFiles(t), testca.NewFiles(t)
	one.IssueFor(ca, valid(10*time.Hour))
	other.IssueFor(ca, valid(65*time.Minute))
	roots.Issue(ca)
	ours := []string{one.Cert, other.Cert, roots.CA, "/nowhere"} // other tests have providers too
	var opened []*Provider
	for _, c := range []Config{configOf(one), configOf(other), configOf(one), {CA: roots.CA, Refresh: time.Minute}, {Certificate: "/nowhere", Key: "/nowhere", Refresh: time.Minute}} {
		c.Refresh = time.Nanosecond
		opened = append(opened, NewProvider(c))
	}
	expect := func(when string, want map[string]Identity) {
		t.Helper()
		got := make(map[string]Identity)
		for _, i := range Identities() {
			if slices.Contains(ours, i.File) {
				got[i.File] = i
			}
		}
		xdstest.Equal(t, when, len(want), len(got))
		for file, w := range want {
			if g := got[file]; !g.NotBefore.Equal(w.NotBefore) || !g.NotAfter.Equal(w.NotAfter) || g.File != file {
				t.Errorf("%s: %s is %+v, want %+v", when, file, g, w)
			}
		}
	}
	long := Identity{NotBefore: from, NotAfter: from.Add(10 * time.Hour)}
	short := Identity{NotBefore: from, NotAfter: from.Add(65 * time.Minute)}
	if long.Ending() || !short.Ending() || short.Left() > 5*time.Minute || short.Lifetime() != 65*time.Minute {
		t.Errorf("of %v %v is left, of %v %v", long.Lifetime(), long.Left(), short.Lifetime(), short.Left())
	}
	expect("at first", map[string]Identity{one.Cert: long, other.Cert: short})
	other.IssueFor(ca, valid(20*time.Hour))
	expect("renewed", map[string]Identity{one.Cert: long, other.Cert: {NotBefore: from, NotAfter: from.Add(20 * time.Hour)}})
	other.Write(other.Cert, nil)
	expect("unusable", map[string]Identity{one.Cert: long, other.Cert: {NotBefore: from, NotAfter: from.Add(20 * time.Hour)}})
	opened[0].Close()
	opened[1].Close()
	expect("closed", map[string]Identity{one.Cert: long})
	for _, p := range opened {
		p.Close()
	}
	expect("all closed", nil)
}
