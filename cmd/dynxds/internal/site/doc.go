// Package site runs a control plane from a folder, and answers questions about the
// folder: whether it is right, and what a client would get.
//
// Run joins the parts: folder.Reader reads, publish.Publisher fills the store of
// a controlplane.Server, and serve.Server serves it. A Reloader asks the folder
// again and again whether it changed. A folder that has become faulty, or empty, changes
// nothing: clients keep the last good state, and the log says what is wrong where.
package site
