package xdsclient

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// cacheIn has a client keep its resources in a directory for an hour.
func cacheIn(dir string) testutils.BootstrapOption {
	return testutils.TopLevel("resource_cache", map[string]any{"directory": dir, "max_age": "3600s"})
}

// "The DPDS resource itself is always non-cacheable" (xRFC TP2), also if the server does not say so.
func TestDPDSIsNotKept(t *testing.T) {
	(&transcriptTest{over: "delta", disk: true, then: func(x *transcript) {
		x.types.endpoints = &ResourceType{TypeURL: dynparam.MapTypeURL, Name: "DPDS", Nameless: true, Decode: func(a *anypb.Any, _ DecodeOptions) (any, error) {
			return string(a.GetValue()), nil
		}}
		x.run(`watch e:d a -> stream; e.req +d; req +a
			send e:1 [Resource]{name:"d",version:"1",resource:{type_url:"` + dynparam.MapTypeURL + `"}} -> e.ack 1; e:d =
			send 2 a=x -> ack 2; a = x
			disk close -> closed; disk a=x`)
	}}).run(t)
}

// Of several clients that share a file a start finds what the one had that wrote last; never a mixture, in
// which what one of them was refused would still be.
func TestClientsShareAFile(t *testing.T) {
	(&transcriptTest{over: "delta", disk: true, then: func(x *transcript) {
		var clients []*transcript
		for i := range 3 {
			c := x.another()
			y := x.beside(c, c)
			y.disk = nil
			y.run(strings.ReplaceAll(`watch own shared -> stream; req +own +shared
				send 1 own=x shared=x -> ack 1; own = x; shared = x
				wait 1s`, "own", fmt.Sprint("own-", i)))
			clients = append(clients, y)
		}
		x.run("wait 1s -> disk own-2=x shared=x\nrefuse")
		for i, y := range clients[1:] {
			y.run(fmt.Sprintf("break -> own-%d ambient: unreachable; shared ambient: unreachable", i+1))
		}
		clients[0].run("send 2 -shared -> ack 2; shared ambient: does not exist")
		x.run("wait 10m -> disk own-0=x")
		for _, y := range clients {
			y.c.Close()
			x.run("wait 0s")
		}
	}}).run(t)
}

// A watch that never gets an answer, here of a server that always lacks one, holds up writing until the file is to be
// written again because of its age.
func TestUnansweredWatchesDoNotHoldUpForEver(t *testing.T) {
	(&transcriptTest{over: "delta", disk: true, steps: `watch a b -> stream; req +a +b
		send 1 a=old b=old -> ack 1; a = old; b = old
		disk start -> closed; disk a=old b=old
		watch a -> stream; req +a
		send 1 a=new -> ack 1; a = new`, then: func(x *transcript) {
		late := ""
		for i, began := 0, time.Now(); time.Since(began) < time.Hour/8-14*time.Second; i++ {
			x.run(fmt.Sprintf("watch c%d -> req +c%[1]d\nwait 14s%[2]s", i, late))
			late = fmt.Sprintf(" -> c%d: timeout", i)
		}
		x.run("watch c -> req +c\nwait 14s" + late + "; disk a=new")
	}}).run(t)
}
