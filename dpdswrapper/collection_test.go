package dpdswrapper_test

import (
	"fmt"
	"strings"

	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// member is a variant of a cluster of authority "a".
func member(id string, pairs ...string) xdsclient.Member {
	return xdsclient.Member{Name: name("a", clusterType, id), Parameters: must(dynparam.NewParameters(mapOf(pairs)))}
}

// crowd is a watcher of a collection in the layer above.
type crowd struct{ record }

func (c *crowd) addCall(what string, m xdsclient.Member, content any, err error, done func()) {
	if m.Name != "" {
		what += " " + m.Name[strings.LastIndexByte(m.Name, '/')+1:] + m.Parameters.String()
	}
	switch {
	case err != nil:
		what += ": " + text(err)
	case content != nil:
		what += fmt.Sprint(" = ", content)
	}
	c.add(what, done)
}

func (c *crowd) MemberChanged(m xdsclient.Member, value any, err error, done func()) {
	c.addCall("member", m, value, err, done)
}

func (c *crowd) CollectionChanged(err error, done func()) {
	c.addCall("whole", xdsclient.Member{}, nil, err, done)
}

func (c *crowd) AmbientError(m xdsclient.Member, err error, done func()) {
	c.addCall("ambient", m, nil, err, done)
}

func (w *fakeWatch) memberChanged(m xdsclient.Member, value any, err error) {
	w.client.t.Helper()
	w.once(func(done func()) { w.collection.MemberChanged(m, value, err, done) })
}

func (w *fakeWatch) collectionChanged(err error) {
	w.client.t.Helper()
	w.once(func(done func()) { w.collection.CollectionChanged(err, done) })
}
