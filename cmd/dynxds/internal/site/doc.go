// Package site runs a control plane from a folder, validates the folder, and shows what a client would
// get.
//
// Run connects the parts: folder.Reader reads, publish.Publisher fills the store of a
// controlplane.Server, and serve.Server serves it. A reloader polls the folder for changes. A folder that
// became faulty or empty changes nothing: clients keep the last good state, and the log has the faults
// with their lines.
package site
