package xdsclient

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// resourceDecoder has the type decode the resources of a response. The lock is not held.
type resourceDecoder struct {
	types *typeState
	// server is the one that sent it, and need not be that of the channel if the resource is from disk.
	server *bootstrap.Server
	// size is that of the response, in bytes.
	size int
	// panics counts the panics of the type's decoder.
	panics int
}

// decode decodes a resource, which gets a payload or an error.
func (d *resourceDecoder) decode(it *item) {
	defer func() {
		if p := recover(); p != nil {
			it.Err = fmt.Errorf("the decoder panicked: %v", p)
			if d.panics++; d.panics == 1 { // of many, one shows where
				logger.Errorf("xDS %s: %v\n%s", d.types.typ.Name, it.Err, debug.Stack())
			}
		}
	}()
	ch := d.types.channel
	p := &payload{raw: d.kept(it.bytes()), enveloped: it.enveloped, server: d.server}
	opts := DecodeOptions{Server: d.server, Envelope: it.envelope(), Loads: ch.share.loads, Bootstrap: ch.client.config, Last: it.last}
	p.value, it.Err = d.types.typ.Decode(p.resource(d.types.typ), opts)
	switch {
	case it.Err != nil:
	case p.value == nil:
		it.Err = errors.New("the decoder made nothing of it")
	case len(it.Name) == 0:
		it.Err = errors.New("it has no name")
	default:
		// What is passed on with its envelope may call itself what it likes.
		if own := d.types.typ.NameOf(it.Value); !it.enveloped && len(own) > 0 && !sameName(string(own), string(it.Name)) {
			it.Err = fmt.Errorf("it calls itself %q, other than its wrapper", own)
			return
		}
		it.payload = p
		ch.client.ignored.add(d.types.typ, it.Name, p.value)
	}
}

// kept returns the bytes of a resource to be kept: the bytes in the response, if they are more than half of the response and
// its memory is not used again, and otherwise a copy.
func (d *resourceDecoder) kept(b []byte) []byte {
	if d.size > transport.MaxPooled && 2*len(b) > d.size {
		return slices.Clip(b)
	}
	return bytes.Clone(b)
}
