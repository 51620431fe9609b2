// Package builtin registers the HTTP filters that come with dynxds: import it for its
// side effect. It is the only list of them.
//
// Package resolver imports it, so every program that resolves xDS targets has them. It
// is for programs that decode or validate resources without a channel.
package builtin

import (
	_ "github.com/dynxds/dynxds/httpfilter/composite"
	_ "github.com/dynxds/dynxds/httpfilter/extauthz"
	_ "github.com/dynxds/dynxds/httpfilter/extproc"
	_ "github.com/dynxds/dynxds/httpfilter/fault"
	_ "github.com/dynxds/dynxds/httpfilter/gcpauthn"
	_ "github.com/dynxds/dynxds/httpfilter/headermutation"
	_ "github.com/dynxds/dynxds/httpfilter/inert"
	_ "github.com/dynxds/dynxds/httpfilter/localratelimit"
	_ "github.com/dynxds/dynxds/httpfilter/router"
	_ "github.com/dynxds/dynxds/httpfilter/statefulsession"
)
