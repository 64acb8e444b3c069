//! Where things are: the workspace, its `target` directory, and directories for one run.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::failure::{Doing, Failure};

/// The workspace's root.
pub fn workspace() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}

/// A directory for one run, removed with everything in it when dropped, unless it is to be kept.
pub struct RunDir {
    path: PathBuf,
    keep: bool,
}

impl RunDir {
    /// A new directory below the system's one for temporary files, readable by its owner only, since it will hold
    /// tokens.
    ///
    /// # Errors
    ///
    /// When it cannot be created.
    pub fn new(name: &str) -> Result<RunDir, Failure> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("{name}-{}-{count}", std::process::id()));
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).doing(|| format!("cannot create {}", path.display()))?;
        Ok(RunDir { path, keep: false })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Leaves the directory where it is, because a person will want to read its logs.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// Whether [`RunDir::keep`] has been called.
    pub fn is_kept(&self) -> bool {
        self.keep
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if !self.keep {
            // A file that cannot be removed is the temporary directory's business.
            std::fs::remove_dir_all(&self.path).ok();
        }
    }
}
